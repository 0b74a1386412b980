package server

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Defaults of the flags. Source: memcached 1.6.45.
const (
	defaultPort        = 11211   // -p
	defaultUnixMask    = 0o700   // -a
	defaultMaxConns    = 1024    // -c
	defaultThreads     = 4       // -t
	defaultBacklog     = 1024    // -b
	defaultMemoryMB    = 64      // -m
	defaultItemMax     = 1 << 20 // -I
	defaultChunkMin    = 48      // -n
	defaultPrefixDelim = ':'     // -D
)

// Limits of the flags. Source: memcached 1.6.45.
const (
	portMax         = 65535
	itemMaxMinBytes = 1024
	itemMaxMaxBytes = 1 << 30

	// compatMemoryMaxMB is what one shard, all that compat_slabs has, reaches.
	compatMemoryMaxMB = 16 << 10
)

// Exit codes of a refused start. Source: memcached 1.6.45, which takes the
// last two from sysexits.h.
const (
	ExitFailure = 1
	ExitUsage   = 64
	ExitOS      = 71
)

// Config is how a server is to run: what the flags say. The zero value is
// memcached's defaults, but for the address, which is the loopback. Numbers
// are defaults when 0, and refused by Validate when negative, unless said
// otherwise.
type Config struct {
	Port       int      // -p: TCP port; 0 is 11211, -1 any free one
	TCPOff     bool     // -p 0
	UDPPort    int      // -U: 0 is off, -1 any free one; on the addresses of Listen
	Listen     []string // -l: each a list of addresses; none is the loopback
	UnixSocket string   // -s: path; TCP and UDP are off then
	UnixMask   uint32   // -a: mode of the socket file
	PortFile   string   // $MEMCACHED_PORT_FILENAME: told the ports that were bound

	MaxConns       int  // -c: open connections of clients
	NoMaxConnsFast bool // -o no_maxconns_fast: over -c wait instead of refusing
	Backlog        int  // -b
	SocketMark     int  // -o sock_cookie_id: SO_MARK of the sockets; 0 is none
	Threads        int  // -t: event loops
	ReqsPerEvent   int  // -R: requests before others get a turn; 0 is not given
	IdleSeconds    int  // -o idle_timeout: TCP connections only; 0 is never

	MemoryMB      int     // -m: item memory
	ItemMaxBytes  int     // -I
	NoEvict       bool    // -M
	GrowthFactor  float64 // -f; 0 is Quarry's own class table
	ChunkMin      int     // -n
	LargePages    bool    // -L: items and index in large pages of the system
	NoCAS         bool    // -C
	FlushDisabled bool    // -F

	TLS TLS // -Z

	EnableShutdown bool // -A
	PrefixDelim    byte // -D
	DetailOn       bool // -D was given: stats detail is on from the start
	Verbosity      int  // -v

	// Who shares the cache. Memcached has none of this.
	TenantDelimiter byte          // --tenant-delimiter: ends a tenant's name in its keys; 0 is no tenants
	TenantQuotas    []TenantQuota // --tenant-quota
	TenantDefault   Quota         // --tenant-default: of each tenant without a quota of its own
	TenantsTracked  int           // --tenant-tracked: of those, how many a shard has account of

	// What operators look at. Memcached has none of this.
	AdminListen string // --admin-listen: port, or address with a port, of admin HTTP; "" is off
	AdminPprof  bool   // --admin-pprof: profiles of the program there

	MemoryFile    string // -e: path of the file that the items are in; "" is memory of the process
	Recover       bool   // --recover: look for items in it after a crash too
	ItemChecksums bool   // --item-checksums: 4 bytes more an item, to know which are whole then

	NoDump   bool   // -X: no stats detail, no dumps of keys
	NoWatch  bool   // -W
	Protocol string // -B: ascii, binary or auto; "" is ascii with AuthFile, binary with SASL, else auto
	AuthFile string // -Y: file of users and passwords; "" lets everyone in
	SASL     bool   // -S
	SASLFile string // --sasl-file, or $MEMCACHED_SASL_PWDB: the users of -S

	Extended Extended // -o: what has no field above

	Cluster ClusterConfig // --node-id and others: this server is a node. Memcached has none of this

	// Versions, deadlines and grants. Memcached has none of this.
	Fresh FreshConfig // --grant-max-ms, --floor-retention, --fill-..., --version-range and others

	Clock  Clock        // nil is SystemClock
	Wall   Clock        // what Clock is held against; nil is the system's wall clock, or Clock if that is given
	Logger *slog.Logger // nil is slog.Default

	// sendBufferBytes is SO_SNDBUF of the connections, 0 the system's. Tests
	// make it small: loopback hides short writes.
	sendBufferBytes int

	// alwaysRounds has every small read join a round, however few there are.
	alwaysRounds bool

	// handshakeTimeout is 0 for the constant.
	handshakeTimeout time.Duration
}

// ConfigError is a value that a flag cannot have.
type ConfigError struct {
	Flag  string // as on the command line: "-c"
	Value string
	Line  string // memcached's line about it, or what is wrong where the flag is Quarry's own
	Exit  int    // memcached's exit code
}

// Error names the flag, the value and what is wrong.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("server: %s %s: %s", e.Flag, e.Value, strings.TrimSuffix(e.Line, "."))
}

// Validate reports the first value that a server cannot run with, as a
// *ConfigError. What -l lists is looked at by Start.
func (c *Config) Validate() error {
	d := c.withDefaults()
	positive := func(flag string, v int, what string) error {
		if v > 0 {
			return nil
		}
		return &ConfigError{flag, strconv.Itoa(v), what + " must be greater than 0", ExitFailure}
	}
	for _, err := range []error{
		positive("-c", d.MaxConns, "Maximum connections"),
		positive("-t", d.Threads, "Number of threads"),
		positive("-n", d.ChunkMin, "Chunk size"),
		positive("-m", d.MemoryMB, "Item memory"),
		positive("-b", d.Backlog, "Listen backlog"),
	} {
		if err != nil {
			return err
		}
	}
	size := strconv.Itoa(d.ItemMaxBytes)
	_, policyErr := store.ParsePolicy(d.Extended.LRUPolicy)
	switch {
	case policyErr != nil:
		return &ConfigError{"-o lru_policy", d.Extended.LRUPolicy, "lru_policy must be tinylfu or segmented", ExitFailure}
	case d.Extended.CompatSlabs && d.MemoryMB > compatMemoryMaxMB:
		return &ConfigError{"-o compat_slabs", strconv.Itoa(d.MemoryMB),
			fmt.Sprintf("compat_slabs can have %d megabytes at most", compatMemoryMaxMB), ExitUsage}
	case d.ReqsPerEvent < 0:
		return &ConfigError{"-R", strconv.Itoa(d.ReqsPerEvent),
			"Number of requests per event must be greater than 0", ExitFailure}
	case d.IdleSeconds < 0:
		return &ConfigError{"-o idle_timeout", strconv.Itoa(d.IdleSeconds),
			"idle_timeout must not be negative", ExitFailure}
	case d.GrowthFactor != 0 && d.GrowthFactor <= 1:
		return &ConfigError{"-f", strconv.FormatFloat(d.GrowthFactor, 'g', -1, 64),
			"Factor must be greater than 1", ExitFailure}
	case d.ItemMaxBytes < itemMaxMinBytes:
		return &ConfigError{"-I", size, "Item max size cannot be less than 1024 bytes.", ExitUsage}
	case d.ItemMaxBytes > d.MemoryMB<<20/2:
		return &ConfigError{"-I", size, "Cannot set item size limit higher than 1/2 of memory max.", ExitUsage}
	case d.ItemMaxBytes > itemMaxMaxBytes:
		return &ConfigError{"-I", size, "Cannot set item size limit higher than a gigabyte.", ExitUsage}
	case d.Port < -1 || d.Port > portMax:
		return &ConfigError{"-p", strconv.Itoa(d.Port),
			fmt.Sprintf("ERROR: Invalid port number %d.", d.Port), ExitUsage}
	case d.UDPPort < -1 || d.UDPPort > portMax:
		return &ConfigError{"-U", strconv.Itoa(d.UDPPort),
			fmt.Sprintf("ERROR: Invalid port number %d.", d.UDPPort), ExitUsage}
	}
	if err := c.validateProtocol(); err != nil {
		return err
	}
	if err := c.validateAuth(); err != nil {
		return err
	}
	if err := d.validateAdmin(); err != nil {
		return err
	}
	if err := d.validateTLS(); err != nil {
		return err
	}
	if err := d.Fresh.Validate(); err != nil {
		return &ConfigError{"freshness", "", err.Error(), ExitUsage}
	}
	return d.validateTenants()
}

// asciiWithSASL is memcached's line about both together.
const asciiWithSASL = "ERROR: You cannot allow the ASCII protocol while using SASL."

// validateProtocol reports what -B and -S cannot be together with.
func (c *Config) validateProtocol() error {
	p, ok := parseProtocol(c.Protocol)
	switch {
	case !ok:
		return &ConfigError{"-B", c.Protocol, fmt.Sprintf("Invalid value for binding protocol: %s\n"+
			" -- should be one of auto, binary, or ascii", c.Protocol), ExitUsage}
	case !c.SASL:
		return nil
	case c.AuthFile != "":
		return &ConfigError{"-S with -Y", c.AuthFile,
			"-S and -Y cannot be together: one is for the binary protocol, the other for the text protocol", ExitUsage}
	case p != protocolBinary && c.Protocol != "":
		return &ConfigError{"-S with -B", c.Protocol, asciiWithSASL, ExitUsage}
	case c.UDPPort != 0:
		return &ConfigError{"-S with -U", strconv.Itoa(c.UDPPort),
			"ERROR: Cannot enable UDP while using binary SASL authentication.", ExitUsage}
	case c.SASLFile == "":
		return &ConfigError{flagSASLFile, `""`, "-S needs a file of users: this flag, or $MEMCACHED_SASL_PWDB", ExitUsage}
	}
	return nil
}

// flagSASLFile is the name of a flag in messages.
const flagSASLFile = "--sasl-file"

// protocol is what connections speak whose listener does not say.
func (c *Config) protocol() protocol {
	switch {
	case c.SASL:
		return protocolBinary
	case c.AuthFile != "":
		return protocolASCII
	}
	p, _ := parseProtocol(c.Protocol)
	return p
}

// withDefaults is c with all that was not given filled in.
func (c *Config) withDefaults() Config {
	d := *c
	fill := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	fill(&d.Port, defaultPort)
	fill(&d.MaxConns, defaultMaxConns)
	fill(&d.Backlog, defaultBacklog)
	fill(&d.Threads, defaultThreads)
	fill(&d.MemoryMB, defaultMemoryMB)
	fill(&d.ItemMaxBytes, defaultItemMax)
	fill(&d.ChunkMin, defaultChunkMin)
	if d.UnixMask == 0 {
		d.UnixMask = defaultUnixMask
	}
	if d.PrefixDelim == 0 {
		d.PrefixDelim = defaultPrefixDelim
	}
	if d.Protocol == "" && d.AuthFile != "" {
		d.Protocol = "ascii"
	}
	d.TLS = d.TLS.withDefaults()
	if d.handshakeTimeout == 0 {
		d.handshakeTimeout = handshakeTimeout
	}
	d.Extended = d.Extended.withDefaults()
	if d.Wall == nil && d.Clock != nil {
		d.Wall = d.Clock
	}
	if d.Clock == nil {
		d.Clock = SystemClock()
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	return d
}
