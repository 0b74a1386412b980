package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Go cannot fork, so -d starts the program once more in a session of its own.
// The first process waits until the second one serves, and hands on its exit
// code if it does not: a port that is taken is known to whoever typed the
// command, or to the script.

// readyEnv tells the second process that it is one, and which descriptor the
// first one waits on.
const readyEnv = "QUARRYD_READY_FD"

// readyFD is that descriptor: the first one after stdio.
const readyFD = 3

// daemonChild reports whether this is the second process.
func daemonChild() bool { return os.Getenv(readyEnv) == strconv.Itoa(readyFD) }

// startDaemon starts the second process and returns the exit code of the
// first.
func startDaemon() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("quarryd: find own program: %w", err)
	}
	ready, child, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("quarryd: daemon: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), readyEnv+"="+strconv.Itoa(readyFD))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{child} // descriptor readyFD there
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("quarryd: daemon: %w", err)
	}
	_ = child.Close()
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		return 0, nil
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("quarryd: daemon: %w", err)
	}
	return max(cmd.ProcessState.ExitCode(), exitError), nil
}

// enterDaemon is what the second process does before it listens: relative
// paths are below / from here on, as memcached's are.
func enterDaemon(stay bool) error {
	unix.CloseOnExec(readyFD)
	if err := os.Unsetenv(readyEnv); err != nil {
		return fmt.Errorf("quarryd: daemon: %w", err)
	}
	if stay {
		return nil
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("quarryd: daemon: %w", err)
	}
	return nil
}

// leaveTerminal is what the second process does once it serves: it gives up
// stdio, unless it has something to say there, and lets the first one go.
func leaveTerminal(keepStdio bool) error {
	if !keepStdio {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("quarryd: daemon: %w", err)
		}
		defer func() { _ = null.Close() }()
		for fd := range 3 {
			if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
				return fmt.Errorf("quarryd: daemon: %w", err)
			}
		}
	}
	ready := os.NewFile(readyFD, "ready")
	_, _ = ready.Write([]byte{1}) // the first process may be gone; nothing depends on it
	return ready.Close()
}

// savePID writes the pid file under another name first, so that nobody finds
// it empty. A server runs without one too.
func savePID(path string) {
	if old, err := os.ReadFile(path); err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(string(old)))
		if err == nil && pid > 0 && unix.Kill(pid, 0) == nil {
			slog.Warn(fmt.Sprintf("WARNING: The pid file contained the following (running) pid: %d", pid))
		}
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
		slog.Warn("no pid file", "error", err)
		return
	}
	if err := os.Rename(tmp, path); err != nil {
		slog.Warn("no pid file", "error", err)
	}
}

// removePID removes the pid file of a daemon at its end.
func removePID(path string) {
	if path == "" {
		return
	}
	if err := os.Remove(path); err != nil {
		slog.Warn("pid file not removed", "error", err)
	}
}

// assumeUser gives up root for the user that -u names. Others than root keep
// what they are, whatever -u says.
func assumeUser(name string) error {
	if os.Getuid() != 0 && os.Geteuid() != 0 {
		if u, err := user.Current(); err == nil && name != "" && name != u.Username {
			slog.Warn(fmt.Sprintf("-u %s: not started as root, so this stays %s", name, u.Username))
		}
		return nil
	}
	if name == "" {
		slog.Warn("running as root: name another user with -u")
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return refuse(exitNoUser, "can't find the user %s to switch to", name)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return refuse(exitOS, "failed to assume identity of user %s", name)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return refuse(exitOS, "failed to assume identity of user %s", name)
	}
	// EPERM: the groups are as few as they can be already.
	if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, syscall.EPERM) {
		return refuse(exitOS, "failed to drop supplementary groups: %v", err)
	}
	if syscall.Setgid(gid) != nil || syscall.Setuid(uid) != nil {
		return refuse(exitOS, "failed to assume identity of user %s", name)
	}
	return nil
}

// allowCores raises the limit on core files as far as it goes, and makes the
// runtime leave one after a crash.
func allowCores() error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err == nil {
		all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		if unix.Setrlimit(unix.RLIMIT_CORE, &all) != nil {
			lim.Cur = lim.Max
			_ = unix.Setrlimit(unix.RLIMIT_CORE, &lim) // judged below
		}
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err != nil || lim.Cur == 0 {
		return refuse(exitOS, "failed to ensure corefile creation")
	}
	debug.SetTraceback("crash")
	return nil
}
