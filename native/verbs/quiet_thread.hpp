// SPDX-License-Identifier: GPL-2.0-or-later
// A thread that gets none of the program's signals: those are for the program's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace softroce::verbs {

// std::system_error: there can be no more threads.
inline pthread_t start_quiet_thread(void* (*work)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_t thread;
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, nullptr, work, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw std::system_error(error, std::generic_category(), "start a thread");
  return thread;
}

}  // namespace softroce::verbs
