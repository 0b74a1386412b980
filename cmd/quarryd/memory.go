package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// -k keeps memory out of the swap: pages are locked when they come into use
// (MCL_ONFAULT). What is merely reserved, which is many times as much, stays
// nothing.

// raiseLockLimit lets the process lock as much as it likes, if it may say so
// itself: as root, which it may stop being after this.
func raiseLockLimit() {
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all) // lockMemory sees what came of it
}

// lockMemory locks what is in use and what will be. Where there is a limit,
// memory to come is left out: beyond it the Go runtime would get none, and end
// the process. As in memcached, the server runs without a lock, too.
func lockMemory() {
	how := unix.MCL_CURRENT | unix.MCL_ONFAULT
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err == nil && lim.Cur == unix.RLIM_INFINITY {
		how |= unix.MCL_FUTURE
	}
	if err := unix.Mlockall(how); err != nil {
		slog.Warn(fmt.Sprintf("warning: -k invalid, mlockall() failed: %v", err))
	}
}

// largePagesFile says how the kernel treats large pages.
const largePagesFile = "/sys/kernel/mm/transparent_hugepage/enabled"

// largePagesAllowed reports whether -L can have any effect. Source:
// memcached's enable_large_pages.
func largePagesAllowed() bool {
	text, err := os.ReadFile(largePagesFile)
	return err == nil && len(text) > 0 && !strings.Contains(string(text), "[never]")
}
