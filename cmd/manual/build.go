package manual

import (
	"runtime/debug"
	"strings"
)

// Build is the version of the program that runs, and its date: those of the
// commit that it was built from, which the go tool writes into programs. They
// are the same whenever and wherever that is built.
func Build() (version, date string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	if v := info.Main.Version; v != "(devel)" {
		version = strings.TrimPrefix(v, "v")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			date, _, _ = strings.Cut(s.Value, "T")
		}
	}
	return version, date
}
