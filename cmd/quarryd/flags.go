package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/server"
)

// flags is the command line, in the order of memcached's help. Tags that kong
// does not know: positive is the complaint about a number that is not;
// refused, why a flag cannot be had; unused, that it is accepted and does
// nothing; final, that it prints something and ends; letteronly, that it has
// no long form; own, that it is Quarry's, not memcached's; values, those that
// it may have, for shells to complete.
type flags struct {
	Port       *number   `short:"p" placeholder:"num" help:"TCP port to listen on (default: 11211)\n0 is off, -1 any free one"`
	UDPPort    *number   `short:"U" name:"udp-port" placeholder:"num" help:"UDP port to listen on (default: 0, off)\nwithout -p the TCP port, too"`
	UnixSocket string    `short:"s" placeholder:"file" help:"UNIX socket to listen on (disables network support)"`
	UnixMask   mode      `short:"a" placeholder:"mask" default:"700" help:"access mask for UNIX socket, in octal (default: 700)"`
	Shutdown   bool      `short:"A" name:"enable-shutdown" help:"enable ascii \"shutdown\" command"`
	Listen     []string  `short:"l" sep:"none" placeholder:"addr" help:"interface to listen on (default: the loopback addresses)\n* is every address; can specify multiple comma separated listeners\nformat: proto[<protocol>]:tag[<name>]:ip:port\ni.e -l proto[ascii]:tag[services]:127.0.0.1:11211,tag_tools_:127.0.0.1:11212\nif TLS/SSL is enabled, 'notls', 'btls', 'mtls' prefix can be used to\nspecify for specific listeners no tls, basic tls, or peer-auth tls\n(i.e -l mtls:proto[ascii]:tag_tools_:127.0.0.1:11212)"`
	Daemon     bool      `short:"d" help:"run as a daemon"`
	CoreDumps  bool      `short:"r" name:"enable-coredumps" help:"maximize core file limit"`
	User       string    `short:"u" placeholder:"user" help:"assume identity of <username> (only when run as root)"`
	Memory     number    `short:"m" name:"memory-limit" placeholder:"num" default:"64" help:"item memory in megabytes (default: 64)"`
	NoEvict    bool      `short:"M" name:"disable-evictions" help:"return error on memory exhausted instead of evicting"`
	Conns      number    `short:"c" name:"conn-limit" placeholder:"num" default:"1024" positive:"Maximum connections must be greater than 0" help:"max simultaneous connections (default: 1024)"`
	LockMemory bool      `short:"k" name:"lock-memory" help:"lock down all memory that is in use"`
	Verbose    int       `short:"v" type:"counter" help:"verbose (print errors/warnings while in event loop)\n-vv                       very verbose (also print client commands/responses)\n-vvv                      extremely verbose (internal state transitions)"`
	Help       bool      `short:"h" final:"" help:"print this help and exit"`
	License    bool      `short:"i" final:"" help:"print license and exit"`
	Version    bool      `short:"V" final:"" help:"print version and exit"`
	PIDFile    string    `short:"P" name:"pidfile" placeholder:"file" help:"save PID in <file>; removed at the end with -d option"`
	Factor     *factor   `short:"f" name:"slab-growth-factor" placeholder:"num" help:"chunk size growth factor (default: finer classes than any factor\ngives; with a factor the classes are memcached's)"`
	ChunkMin   number    `short:"n" name:"slab-min-size" placeholder:"bytes" default:"48" positive:"Chunk size must be greater than 0" help:"min space used for key+value+flags (default: 48)"`
	LargePages bool      `short:"L" name:"enable-largepages" help:"try to use large memory pages (if available)"`
	Delimiter  delimiter `short:"D" name:"prefix-delimiter" letteronly:"" placeholder:"char" help:"Use <char> as the delimiter between key prefixes and IDs.\nThis is used for per-prefix stats reporting. The default is\n\":\" (colon). If this option is specified, stats collection\nis turned on automatically; if not, then it may be turned on\nby sending the \"stats detail on\" command to the server."`
	Threads    number    `short:"t" placeholder:"num" default:"4" positive:"Number of threads must be greater than 0" help:"number of threads to use (default: 4)"`
	Requests   number    `short:"R" name:"max-reqs-per-event" placeholder:"num" positive:"Number of requests per event must be greater than 0" help:"maximum number of requests per event, limits the\nrequests processed per connection to prevent\nstarvation (default: bounded by their bytes alone)"`
	NoCAS      bool      `short:"C" name:"disable-cas" help:"disable use of CAS"`
	Backlog    number    `short:"b" name:"listen-backlog" placeholder:"num" default:"1024" help:"set the backlog queue limit (default: 1024)"`
	Protocol   protocol  `short:"B" placeholder:"name" values:"auto,ascii,binary" help:"protocol - one of ascii, binary, or auto (default: auto-negotiate)"`
	ItemMax    itemSize  `short:"I" name:"max-item-size" placeholder:"num" default:"1m" help:"adjusts max item size\n(default: 1m, min: 1k, max: 1024m)"`
	SASL       bool      `short:"S" name:"enable-sasl" help:"turn on SASL authentication (PLAIN; binary protocol only);\nthe users are in --sasl-file"`
	NoFlush    bool      `short:"F" name:"disable-flush-all" help:"disable flush_all command"`
	NoDump     bool      `short:"X" name:"disable-dumping" help:"disable stats cachedump, stats detail, and lru_crawler metadump"`
	NoWatch    bool      `short:"W" name:"disable-watch" help:"disable watch commands (live logging)"`
	AuthFile   *string   `short:"Y" placeholder:"file" help:"enable ASCII protocol authentication. format:\nuser:pass\\nuser2:pass2\\n\nread again on SIGHUP"`
	MemoryFile string    `short:"e" name:"memory-file" placeholder:"file" help:"keep items in <file>, which should be on a ram disk, so that\nthey are back after a restart (stop with SIGUSR1)"`
	TLS        bool      `short:"Z" name:"enable-ssl" help:"enable TLS/SSL"`
	Extended   []string  `short:"o" sep:"none" placeholder:"list" help:"comma separated list of extended options\nmost options have a 'no_' prefix to disable"`
	NAPIIDs    number    `short:"N" name:"napi-ids" positive:"Maximum number of NAPI IDs must be greater than 0" unused:"-N: connections are not spread by NIC queue" placeholder:"num" help:"number of napi ids: accepted, without effect"`

	MemcachedConf   string          `own:"" placeholder:"file" help:"read options from <file> as well, which has the form\nof Debian's /etc/memcached.conf: one option a line,\n# before comments; what stands on the command line\ncomes after them"`
	SASLFile        string          `own:"" name:"sasl-file" placeholder:"file" help:"the users of -S: lines of user:hash, with bcrypt hashes\nas quarry passwd or htpasswd -B make them; read again on\nSIGHUP (default: $MEMCACHED_SASL_PWDB)"`
	TenantDelimiter tenantDelimiter `own:"" placeholder:"char" help:"what stands before the first <char> of a key is the\ntenant that it belongs to; see \"stats tenants\""`
	TenantQuota     []string        `own:"" sep:"none" placeholder:"name=limits" help:"what a tenant may use, for example\nweb=memory:64m,value:100k,rate:1000\nmemory: bytes of its items; beyond, it evicts its own\nvalue: bytes of one value\nrate: new keys a second; grants: to fill, out at once\ncan be given for many tenants"`
	TenantDefault   *string         `own:"" placeholder:"limits" help:"the same for each tenant that has no quota of its own;\ntenants that are not tracked have it together"`
	TenantTracked   number          `own:"" placeholder:"num" default:"256" positive:"quarryd: --tenant-tracked: want a number greater than 0" help:"tenants without a quota of their own that a shard keeps\naccount of, the largest ones (default: 256)"`

	Recover       bool `own:"" help:"with -e: keep what is found whole after a crash"`
	ItemChecksums bool `own:"" help:"with -e: 4 bytes more for each item, so that after a\ncrash every value is known to be whole"`

	GrantMaxMS         number   `own:"" name:"grant-max-ms" placeholder:"ms" default:"1000" positive:"quarryd: --grant-max-ms: want a number greater than 0" help:"the longest life of a grant to fill a key (default: 1000)"`
	FillRateForeground number   `own:"" placeholder:"num" help:"grants in any second to callers that wait for the value\n(default: no limit)"`
	FillRateBackground number   `own:"" placeholder:"num" help:"the same to refresh ahead of time (default: no limit)"`
	FillInflight       number   `own:"" placeholder:"num" help:"grants out at once (default: no limit)"`
	FillAdapt          bool     `own:"" help:"find how many by how long fills take: fewer when the\nsource becomes slow"`
	FloorRetention     millis   `own:"" placeholder:"time" default:"30s" help:"for how long it is remembered, at least, that nothing\nolder than a version may be stored (default: 30s)"`
	FloorsMax          number   `own:"" placeholder:"num" help:"keys without a value of which that is remembered\n(default: one for each 4 KB of -m)"`
	VersionRange       []string `own:"" sep:"none" placeholder:"prefix=num" help:"how far the minimum version that a reader asks for may be\nabove the one that is known, for keys with the prefix;\ncan be given for many"`
	GrantOnly          []string `own:"" sep:"none" placeholder:"prefix" help:"set, add, append and the like are refused for keys with\nthe prefix, but with a grant or a version; can be given\nfor many"`
	EarlyBeta          float64  `own:"" placeholder:"num" default:"1" help:"how early the server asks for a refresh before a value is\ndue, in times of a fill; 0 is never (default: 1)"`
	ClockSkewMax       millis   `own:"" placeholder:"time" default:"100ms" help:"by how much clocks may differ; beyond, nothing with a\ndeadline is served (default: 100ms)"`

	Cluster      string `own:"" placeholder:"store" help:"be a node of the cluster whose map is in <store>:\nfile:PATH or etcd:HOST:PORT[,HOST:PORT...][/PREFIX]"`
	NodeID       string `own:"" placeholder:"id" help:"this node in the map"`
	Advertise    string `own:"" placeholder:"host:port" help:"where others reach this node, as the store is told\n(default: the first address that is listened on)"`
	Data         string `own:"" placeholder:"dir" help:"folder in which the newest map is kept, to start\nwithout the store"`
	Misrouted    string `own:"" placeholder:"how" default:"forward" values:"forward,local,refuse" help:"requests for keys of other nodes, from clients that know\nno map: forward to the owner, local, or refuse\n(default: forward)"`
	RelayTimeout millis `own:"" placeholder:"time" default:"100ms" help:"how long a client waits for another node; then reads miss\nand writes are refused (default: 100ms)"`
	KeyCapacity  number `own:"" placeholder:"num" default:"100000" positive:"quarryd: --key-capacity: want a number greater than 0" help:"reads a second of one key that a node is to serve: of\nkeys that are read more, clients that know the map are told\nto split them (default: 100000)"`
	PeerAuthFile string `own:"" placeholder:"file" help:"user:password with which this node logs in to others that\nhave -Y"`
	PeerCA       string `own:"" name:"peer-ca" placeholder:"file" help:"connections to other nodes are encrypted, and their\ncertificates checked by these"`
	PeerCert     string `own:"" placeholder:"file" help:"certificate to show to other nodes, with --peer-key"`
	PeerKey      string `own:"" placeholder:"file" help:"the key of it"`
	ClusterCA    string `own:"" name:"cluster-ca" placeholder:"file" help:"certificates by which those of etcd are checked"`
	ClusterCert  string `own:"" placeholder:"file" help:"certificate to show to etcd, with --cluster-key"`
	ClusterKey   string `own:"" placeholder:"file" help:"the key of it"`

	AdminListen string `own:"" placeholder:"addr" help:"serve figures over HTTP: a page at /, /metrics for\nPrometheus, /healthz, /readyz; <addr> is a port, which is\nthat of the loopback, or address:port (default: off)"`
	AdminPprof  bool   `own:"" help:"serve profiles of the program there, at /debug/pprof/"`

	Man        bool   `own:"" final:"" hidden:""`
	Completion string `own:"" final:"" hidden:""`
}

// number is read as atoi reads it, and held to its flag's positive tag.
type number int

// Decode implements kong.MapperValue.
func (n *number) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	*n = number(atoi(s))
	if complaint := ctx.Value.Tag.Get("positive"); complaint != "" && *n <= 0 {
		return refuse(exitError, "%s", complaint)
	}
	return nil
}

// factor is -f.
type factor float64

// Decode implements kong.MapperValue.
func (f *factor) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	*f = factor(atof(s))
	if *f <= 1 {
		return refuse(exitError, "Factor must be greater than 1")
	}
	return nil
}

// mode is -a.
type mode uint32

// Decode implements kong.MapperValue.
func (m *mode) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	*m = mode(octal(s))
	return err
}

// delimiter is -D: 0 if not given.
type delimiter byte

// Decode implements kong.MapperValue.
func (d *delimiter) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	if s == "" {
		return refuse(exitError, "No delimiter specified")
	}
	*d = delimiter(s[0])
	return nil
}

// tenantDelimiter is --tenant-delimiter: 0 if not given.
type tenantDelimiter byte

// Decode implements kong.MapperValue.
func (d *tenantDelimiter) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	if len(s) != 1 {
		return refuse(exitUsage, "quarryd: --tenant-delimiter %s: want one character", s)
	}
	*d = tenantDelimiter(s[0])
	return nil
}

// protocol is -B: "" if not given.
type protocol string

// Decode implements kong.MapperValue.
func (p *protocol) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	switch *p = protocol(s); s {
	case "auto", "ascii", "binary":
		return nil
	}
	return refuse(exitUsage, "Invalid value for binding protocol: %s\n"+
		" -- should be one of auto, binary, or ascii", s)
}

// itemSize is -I, in bytes.
type itemSize int

// Decode implements kong.MapperValue.
func (i *itemSize) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	unit := 1
	switch {
	case strings.HasSuffix(s, "k"), strings.HasSuffix(s, "K"):
		unit = 1 << 10
	case strings.HasSuffix(s, "m"), strings.HasSuffix(s, "M"):
		unit = 1 << 20
	}
	*i = itemSize(atoi(s) * unit)
	return err
}

// noSwitch is a switch that this server does not have. The tag refused says so.
type noSwitch bool

// Decode implements kong.MapperValue.
func (*noSwitch) Decode(ctx *kong.DecodeContext) error {
	return refuse(exitUsage, "%s", ctx.Value.Tag.Get("refused"))
}

// IsBool implements kong.BoolMapperValue.
func (*noSwitch) IsBool() bool { return true }

// unused lists what the given flags that do nothing say about it.
func unused(model *kong.Application) []string {
	var texts []string
	for _, f := range model.Flags {
		if f.Set && f.Tag.Has("unused") {
			texts = append(texts, f.Tag.Get("unused"))
		}
	}
	return texts
}

// word takes a flag's value from kong.
func word(ctx *kong.DecodeContext) (string, error) {
	var s string
	err := ctx.Scan.PopValueInto("string", &s)
	return s, err
}

// Exit codes. Source: memcached, after sysexits.h.
const (
	exitError  = 1  // a bad value
	exitUsage  = 64 // EX_USAGE
	exitNoUser = 67 // EX_NOUSER
	exitOS     = 71 // EX_OSERR
)

// A refusal ends the program with a text on stderr, which is memcached's
// where it has one.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// asRefusal finds out what the program ends with, in memcached's words where
// there are any; nil if err is nothing that was foreseen.
func asRefusal(err error) *refusal {
	var r *refusal
	var config *server.ConfigError
	var listen *server.ListenError
	var descriptors *server.DescriptorError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &config) && strings.HasPrefix(config.Flag, "--"):
		return &refusal{config.Exit, fmt.Sprintf("quarryd: %s %s: %s", config.Flag, config.Value, config.Line)}
	case errors.As(err, &config):
		return &refusal{config.Exit, config.Line}
	case errors.As(err, &listen):
		return &refusal{exitOS, listen.Error()}
	case errors.As(err, &descriptors):
		return &refusal{exitOS, descriptors.Error()}
	}
	return nil
}

func refuse(code int, format string, values ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, values...)}
}
