-- What follows is the same for any description; above are the tables it walks.
-- Arithmetic alone in place of bit operations: Lua 5.2 and 5.4 spell them differently.

local opcode_field = Field.new("infiniband.bth.opcode")
local padding_field = Field.new("infiniband.bth.padcnt")
local deth_field = Field.new("infiniband.deth")
local immediate_field = Field.new("infiniband.immdt")
local port_field = Field.new("udp.srcport")
local dscp_fields = { Field.new("ip.dsfield.dscp"), Field.new("ipv6.tclass.dscp") }
local data_dissector = Dissector.get("data")

-- The innermost one: there may be tunnels.
local function last_value(field)
  local found = { field() }
  return #found > 0 and found[#found].value or nil
end

-- Which link cut off the payload, in words; empty: none did.
local function trimming(values)
  if values.trimmed == 0 then return "" end
  local innermost
  for _, dscp_field in ipairs(dscp_fields) do
    for _, dscp in ipairs({ dscp_field() }) do
      if innermost == nil or dscp.offset > innermost.offset then innermost = dscp end
    end
  end
  local is_last = innermost ~= nil and innermost.value == TRIM_LAST_DSCP
  return is_last and " trimmed (last hop)" or " trimmed"
end

local function append_range(ranges, first, last)
  if #ranges > 0 and ranges[#ranges][2] + 1 == first then
    ranges[#ranges][2] = last
  else
    ranges[#ranges + 1] = { first, last }
  end
end

local function plain_ranges(base, count, bits)
  local ranges = {}
  if bits:len() ~= math.floor((count + 7) / 8) then
    return nil, "plain bits of another length than announced"
  end
  for index = 0, count - 1 do
    local byte = bits(math.floor(index / 8), 1):uint()
    for _ = 1, index % 8 do byte = math.floor(byte / 2) end
    if byte % 2 == 1 then append_range(ranges, base + index, base + index) end
  end
  return ranges
end

local function run_ranges(base, count, bits)
  local ranges, at, missing, value, scale = {}, 0, true, 0, 1
  for offset = 0, bits:len() - 1 do
    local byte = bits(offset, 1):uint()
    value = value + byte % 128 * scale
    scale = scale * 128
    if byte >= 128 then
      if scale > MOST_SCALE then return nil, "run length too long" end
    else
      if at + value > count then return nil, "runs longer than announced" end
      if missing and value > 0 then append_range(ranges, base + at, base + at + value - 1) end
      at, missing, value, scale = at + value, not missing, 0, 1
    end
  end
  if scale ~= 1 then return nil, "a run length is cut" end
  if at ~= count then return nil, "runs shorter than announced" end
  return ranges
end

local function ranges_of(form, base, count, bits)
  if form == PLAIN then return plain_ranges(base, count, bits) end
  if form ~= RUNS or count > MOST_IN_SET then
    return nil, "unknown form of a packet set, or absurdly many packets"
  end
  return run_ranges(base, count, bits)
end

local function text_of(ranges, problem)
  if ranges == nil then return "malformed: " .. problem end
  local shown = {}
  for number, range in ipairs(ranges) do
    if number > MOST_SHOWN then
      shown[number] = "..."
      break
    end
    local form = range[1] == range[2] and "%d" or "%d-%d"
    shown[number] = string.format(form, range[1], range[2])
  end
  return #shown > 0 and table.concat(shown, ", ") or "none"
end

-- Adds the numbers of a record that begins at `at`. Returns their values by name; nil: they are not
-- all there.
local function add_numbers(tree, body, numbers, at, generated)
  local values = {}
  for _, number in ipairs(numbers) do
    if at + number.at + number.bytes > body:len() then return nil end
    local range = body(at + number.at, number.bytes)
    local item = tree:add(number.field, range)
    if generated then item:set_generated() end
    if number.bytes <= 4 then
      local value = range:uint()
      if number.unit then value = math.floor(value / number.unit) % number.most end
      values[number.name] = value
    end
  end
  return values
end

local function add_missing(tree, body, part, at)
  if body:len() == at then return "all" end
  local set = tree:add(part.field, body(at))
  local values = add_numbers(set, body, PACKET_SET.numbers, at)
  if values == nil then return "malformed: cut" end
  local bits = at + PACKET_SET.bytes < body:len() and body(at + PACKET_SET.bytes):tvb()
    or ByteArray.new():tvb("no bits")
  local text = text_of(ranges_of(values.form, values.base, values.count, bits))
  if bits:len() > 0 then set:add(PACKET_SET.bits, body(at + PACKET_SET.bytes)) end
  set:add(PACKET_SET.packets, body(at), text):set_generated()
  set:append_text(": " .. text)
  return text
end

local function add_entries(tree, body, part, at, count)
  local found = 0
  while (count == nil or found < count) and at + part.bytes <= body:len() do
    local entry = tree:add(part.field, body(at, part.bytes))
    add_numbers(entry, body, part.numbers, at)
    found, at = found + 1, at + part.bytes
  end
  return at
end

-- Up to the first zero.
local function add_text(tree, body, part)
  if part.at + part.bytes > body:len() then return false end
  local size = 0
  while size < part.bytes and body(part.at + size, 1):uint() ~= 0 do size = size + 1 end
  local text = size > 0 and body(part.at, size):string() or ""
  tree:add(part.field, body(part.at, part.bytes), text)
  return true
end

-- Adds a body under `tree`; returns what is to be said of it in the info column.
local function add_record(tree, body, record)
  local item = tree:add(record.field, body())
  local values = add_numbers(item, body, record.numbers, 0)
  if values == nil then return record.name .. " (cut)" end
  if record.text and not add_text(item, body, record.text) then return record.name .. " (cut)" end
  if record.missing then
    return record.name .. ", missing: " .. add_missing(item, body, record.missing, record.bytes)
  end
  local at = record.bytes
  for _, part in ipairs(record.entries or {}) do
    at = add_entries(item, body, part, at, part.count and values[part.count])
  end
  return record.name
end

local function add_body(tree, body, kind, message_id)
  if kind == REPORT then return add_record(tree, body, REPORT_BODY) end
  if kind == PATH_PROBE then return add_record(tree, body, PROBE_BODY) end
  if message_id == HELLO_ID then return add_record(tree, body, HELLO) end
  local record = CONTROLS[body(0, 1):uint()]
  return record and add_record(tree, body, record) or "unknown"
end

-- What a packet without a mark of ours says if it is ours: a subtree of its own, beside what
-- Wireshark shows.
local function add_interpretation(tree, body, record)
  local item = tree:add(record.field, body()):set_generated()
  return item, add_numbers(item, body, record.numbers, 0, true)
end

local function add_immediate(tree)
  if last_value(opcode_field) ~= UC_WRITE_ONLY_IMMEDIATE then return end
  local found = { immediate_field() }
  if #found == 0 then return end
  local item, values = add_interpretation(tree, found[#found].range:tvb(), IMMEDIATE)
  item:append_text(string.format(": slot %d, offset %d, user %d", values.slot, values.offset,
    values.user))
end

local function add_sdr_clear(tree, payload)
  if last_value(opcode_field) ~= RC_SEND_ONLY or payload:len() ~= SDR_CLEAR.bytes
    or (last_value(padding_field) or 0) > 0 or payload(8, 4):uint() > 0 then return end
  local length = payload(12, 4):uint()
  if length < 1 or length > MOST_SLOT_BYTES then return end
  local item, values = add_interpretation(tree, payload, SDR_CLEAR)
  item:append_text(string.format(", if of the SDR SDK: number %d, key 0x%x, length %d",
    values.number, values.key, length))
end

local function is_of_message(kind) return kind == DATA or kind == PARITY end

-- Whether an operation is behind the header: its verb is known, its reserved byte is zero.
local function has_operation(payload, kind)
  return is_of_message(kind) and payload:len() >= HEADER.bytes + OPERATION.bytes
    and VERBS[payload(HEADER.bytes, 1):uint() % 128] ~= nil
    and payload(HEADER.bytes + 4, 1):uint() == 0
end

-- Ours, if our engine would take it for its own.
local function is_ours(payload)
  if last_value(opcode_field) ~= UD_SEND_ONLY or payload:len() < HEADER.bytes then return false end
  local first = payload(0, 1):uint()
  local version, kind = math.floor(first / 16), first % 8
  if version == OPERATION_VERSION then
    if not has_operation(payload, kind) then return false end
  elseif version ~= VERSION or KINDS[kind] == nil then
    return false
  end
  return last_value(port_field) == SPORT_BASE + payload(1, 1):uint()
end

local function message_of(values, kind, operation)
  if operation == nil then
    return string.format("%s %d.%d.%d", KINDS[kind], values.operation, values.step, values.message)
  end
  return (kind == PARITY and "parity of " or "")
    .. (math.floor(values.operation / 256) == RESULT and "result of " or "")
    .. string.format("%s %d of QP 0x%x", VERBS[operation.verb], values.message,
      values.operation % 256 * 65536 + values.step)
end

local function info_of(values, kind, told, operation)
  if not is_of_message(kind) then
    return string.format("%s %d%s", KINDS[kind], values.message, told)
  end
  return string.format("%s id %d packet %d/%d", message_of(values, kind, operation),
    values.message_id, values.index, values.count)
    .. (values.attempt > 0 and string.format(" attempt %d", values.attempt) or "")
    .. trimming(values)
end

-- The number of bytes behind our headers; of a snapped packet, as far as they were captured.
local function length_of(payload, values, snapped, header_bytes)
  local length = payload:len() - header_bytes
  if not snapped then return length - (last_value(padding_field) or 0) end
  return math.min(length, values.length)
end

local function dissect(payload, pinfo, tree, snapped)
  if not is_ours(payload) then return false end
  local kind = payload(0, 1):uint() % 8
  local header_bytes, operation = HEADER.bytes, nil
  local header = tree:add(softroce, payload(0, HEADER.bytes))
  local values = add_numbers(header, payload, HEADER.numbers, 0)
  header:append_text(trimming(values))
  if values.version == OPERATION_VERSION then
    local item = tree:add(OPERATION.field, payload(HEADER.bytes, OPERATION.bytes))
    operation = add_numbers(item, payload, OPERATION.numbers, HEADER.bytes)
    header_bytes = HEADER.bytes + OPERATION.bytes
  end
  local length = length_of(payload, values, snapped, header_bytes)
  local told = ""
  if length > 0 then
    local body = payload(header_bytes, length):tvb()
    local report_bytes = length - values.length
    if kind == CONTROL and values.length > 0 and report_bytes >= REPORT_BODY.bytes then
      told = ": " .. add_body(tree, body(0, values.length):tvb(), kind, values.message_id)
        .. ", " .. add_record(tree, body(values.length):tvb(), REPORT_BODY)
    elseif not is_of_message(kind) then
      told = ": " .. add_body(tree, body, kind, values.message_id)
    else
      data_dissector:call(body, pinfo, tree)
    end
  end
  pinfo.cols.protocol = "softroce"
  pinfo.cols.info:clear_fence() -- around Wireshark's complaint about a snapped packet
  pinfo.cols.info = info_of(values, kind, told, operation)
  return true
end

softroce:register_heuristic("infiniband.payload", function(payload, pinfo, tree)
  add_sdr_clear(tree, payload)
  return dissect(payload, pinfo, tree, false)
end)

-- Wireshark asks no heuristic about a packet that was not captured to its end, nor about extension
-- headers: those come here.
function softroce.dissector(frame, pinfo, tree)
  add_immediate(tree)
  if frame:len() >= frame:reported_len() then return end
  local deth = { deth_field() }
  if #deth == 0 then return end
  local at = deth[#deth].offset + deth[#deth].len
  if at < frame:len() then dissect(frame(at):tvb(), pinfo, tree, true) end
end

register_postdissector(softroce)
