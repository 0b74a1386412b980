package server

import (
	"errors"
	"testing"
)

func TestValidate(t *testing.T) {
	if err := new(Config).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	for _, tt := range []struct {
		cfg  Config
		want string
		exit int
	}{
		{Config{MaxConns: -1}, "server: -c -1: Maximum connections must be greater than 0", ExitFailure},
		{Config{Threads: -1}, "server: -t -1: Number of threads must be greater than 0", ExitFailure},
		{Config{ReqsPerEvent: -1}, "server: -R -1: Number of requests per event must be greater than 0", ExitFailure},
		{Config{GrowthFactor: 1}, "server: -f 1: Factor must be greater than 1", ExitFailure},
		{Config{ChunkMin: -1}, "server: -n -1: Chunk size must be greater than 0", ExitFailure},
		{Config{ItemMaxBytes: 1023}, "server: -I 1023: Item max size cannot be less than 1024 bytes", ExitUsage},
		{Config{ItemMaxBytes: 1<<25 + 1}, "server: -I 33554433: Cannot set item size limit higher than 1/2 of memory max", ExitUsage},
		{Config{MemoryMB: 4096, ItemMaxBytes: 1<<30 + 1}, "server: -I 1073741825: Cannot set item size limit higher than a gigabyte", ExitUsage},
		{Config{Port: 65536}, "server: -p 65536: ERROR: Invalid port number 65536", ExitUsage},
	} {
		err := tt.cfg.Validate()
		var ce *ConfigError
		if !errors.As(err, &ce) || err.Error() != tt.want || ce.Exit != tt.exit {
			t.Errorf("got %v, want %s (exit %d)", err, tt.want, tt.exit)
		}
		if _, err := New(tt.cfg); err == nil {
			t.Errorf("%s: New takes it", tt.want)
		}
	}
}
