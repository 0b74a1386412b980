package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of CPU time in /proc/PID/stat: USER_HZ is 100 on every
// Linux that Go runs on.
const tick = 10 * time.Millisecond

// procUse is what a process has used.
type procUse struct {
	user, system time.Duration // CPU time of all its threads, ended ones too, in ticks
	cpu          time.Duration // of its threads that live, to the nanosecond; user and system where the kernel does not tell
	rssBytes     uint64        // memory resident now
}

// readProcUse reads the use of process pid below root, which is /proc.
func readProcUse(root string, pid int) (procUse, error) {
	dir := filepath.Join(root, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return procUse{}, fmt.Errorf("bench: process %d: %w", pid, err)
	}
	// The command, in parentheses, may hold spaces and parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3 // proc(5) counts from 1; two are cut off
	if len(fields) <= stime {
		return procUse{}, fmt.Errorf("bench: process %d: stat has %d fields", pid, len(fields)+2)
	}
	user, errUser := strconv.ParseUint(string(fields[utime]), 10, 62)
	system, errSystem := strconv.ParseUint(string(fields[stime]), 10, 62)
	if errUser != nil || errSystem != nil {
		return procUse{}, fmt.Errorf("bench: process %d: times %q and %q in stat", pid, fields[utime], fields[stime])
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return procUse{}, fmt.Errorf("bench: process %d: %w", pid, err)
	}
	use := procUse{user: time.Duration(user) * tick, system: time.Duration(system) * tick}
	if use.cpu = threadsCPU(dir); use.cpu == 0 {
		use.cpu = use.user + use.system
	}
	if _, after, ok := bytes.Cut(status, []byte("\nVmRSS:")); ok { // a zombie has none
		words := bytes.Fields(after)
		kib, err := strconv.ParseUint(string(words[0]), 10, 50)
		if err != nil {
			return procUse{}, fmt.Errorf("bench: process %d: VmRSS %q in status", pid, words[0])
		}
		use.rssBytes = kib << 10
	}
	return use, nil
}

// threadsCPU is what the threads of the process at dir have used, 0 where the
// kernel keeps no such statistics.
func threadsCPU(dir string) (sum time.Duration) {
	stats, _ := filepath.Glob(filepath.Join(dir, "task", "*", "schedstat")) // the pattern is good
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		running, _, _ := bytes.Cut(stat, []byte(" "))
		ns, err := strconv.ParseInt(string(running), 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(ns)
	}
	return sum
}

// ownCPU is the CPU time that this process has used.
func ownCPU() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
