package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// SystemStallClocks are those of the system.
func SystemStallClocks() StallClocks {
	start := time.Now()
	wall := func() int64 { return int64(time.Since(start)) }
	return StallClocks{
		Wall: wall,
		Read: func(m *Moment) {
			m.ThreadID = unix.Gettid()
			m.Thread = cpuNanos(unix.CLOCK_THREAD_CPUTIME_ID)
			m.Process = cpuNanos(unix.CLOCK_PROCESS_CPUTIME_ID)
			m.Wall = wall()
		},
	}
}

// cpuNanos is what a clock of CPU time shows, 0 if there is none.
func cpuNanos(clock int32) int64 {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return t.Nano()
}
