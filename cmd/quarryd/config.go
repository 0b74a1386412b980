package main

import (
	"cmp"
	"math"
	"os"
	"strings"

	"github.com/quarrycache/quarry/server"
)

// Limits and defaults that the checks need. Source: memcached 1.6.45.
const (
	chunkMinDefault       = 48        // -n
	slabPageBytes         = 1 << 20   // slab_chunk_max must divide it
	slabChunkMaxDefault   = 512 << 10 // -o slab_chunk_max
	hotLRUPercentDefault  = 20        // -o hot_lru_pct
	warmLRUPercentDefault = 40        // -o warm_lru_pct
	lruPercentMax         = 80        // of both together
	itemMinBytes          = 1 << 10   // the least -I
	itemMaxBytes          = 1 << 30   // the greatest -I
	threadsWise           = 64        // more -t are accepted with a warning
)

// config turns a command line into the server's configuration. The checks
// stand in memcached's order, as the first that fails is what is printed.
// The warnings are for the operator, once it is known that the server starts.
func (f *flags) config() (c server.Config, warnings []string, err error) {
	x := extended{Config: &c}
	f.apply(&x)
	for _, list := range f.Extended {
		if err := x.parse(list); err != nil {
			return c, nil, err
		}
	}
	if err := f.check(&x); err != nil {
		return c, nil, err
	}
	f.slabs(&x)
	f.ports(&x)
	f.tls(&x)
	if err := f.tenants(&x); err != nil {
		return c, nil, err
	}
	if err := f.freshness(&x); err != nil {
		return c, nil, err
	}
	if err := f.cluster(&x); err != nil {
		return c, nil, err
	}
	return c, x.warnings, c.Validate()
}

// apply copies what stands for itself.
func (f *flags) apply(x *extended) {
	x.UnixSocket = f.UnixSocket
	x.UnixMask = uint32(f.UnixMask)
	x.EnableShutdown = f.Shutdown
	x.Listen = interfaces(f.Listen)
	x.PortFile = os.Getenv("MEMCACHED_PORT_FILENAME")
	x.MemoryMB = int(f.Memory)
	x.NoEvict = f.NoEvict
	x.MaxConns = int(f.Conns)
	x.Verbosity = f.Verbose
	if f.Factor != nil {
		x.GrowthFactor = float64(*f.Factor)
	}
	x.ChunkMin = int(f.ChunkMin)
	x.LargePages = f.LargePages
	x.PrefixDelim = byte(f.Delimiter)
	x.DetailOn = f.Delimiter != 0
	x.Threads = int(f.Threads)
	if x.Threads > threadsWise {
		x.warn("WARNING: Setting a high number of worker threads is not recommended. " +
			"Set this value to the number of cores in your machine or less.")
	}
	x.ReqsPerEvent = int(f.Requests)
	x.NoCAS = f.NoCAS
	x.Backlog = int(f.Backlog)
	switch {
	case x.Backlog == 0:
		x.Backlog = 1 // the least there is: 0 would be the default
	case x.Backlog < 0:
		x.Backlog = math.MaxInt16 // the kernel takes it for as many as it allows
	}
	x.Protocol = string(f.Protocol)
	if f.AuthFile != nil {
		x.AuthFile = *f.AuthFile
	}
	x.SASL = f.SASL
	x.SASLFile = cmp.Or(f.SASLFile, os.Getenv("MEMCACHED_SASL_PWDB"))
	x.ItemMaxBytes = int(f.ItemMax)
	x.FlushDisabled = f.NoFlush
	x.NoDump = f.NoDump
	x.NoWatch = f.NoWatch
	x.AdminListen = f.AdminListen
	x.AdminPprof = f.AdminPprof
	x.MemoryFile = f.MemoryFile
	x.Recover = f.Recover
	x.ItemChecksums = f.ItemChecksums
	if x.MemoryFile == "" && (x.Recover || x.ItemChecksums) {
		x.warn("--recover and --item-checksums have no effect without -e")
	}
}

// slabs warns of what has an effect on memcached's classes alone.
func (f *flags) slabs(x *extended) {
	if x.Extended.CompatSlabs {
		return
	}
	if x.ChunkMin != chunkMinDefault && f.Factor == nil {
		x.warn("-n has no effect without -f: the smallest chunks are smaller already")
	}
	for _, name := range x.ofSlabs {
		x.warn("-o %s is accepted and has no effect without compat_slabs", name)
	}
}

// interfaces drops every -l that stands in the ones before it already, as
// memcached does.
func interfaces(given []string) []string {
	var lists []string
	for _, l := range given {
		if l != "" && !strings.Contains(strings.Join(lists, ","), l) {
			lists = append(lists, l)
		}
	}
	return lists
}

// check refuses values that do not go together, and those that a number of 0
// would turn into the default.
func (f *flags) check(x *extended) error {
	switch {
	case f.NAPIIDs > f.Threads:
		return refuse(exitUsage, "Number of napi_ids(%d) cannot be greater than number of threads(%d)",
			f.NAPIIDs, f.Threads)
	case f.SASLFile != "" && !f.SASL:
		return refuse(exitUsage, "quarryd: --sasl-file %s: is of no use without -S", f.SASLFile)
	case f.Memory < 0:
		return refuse(exitUsage, "quarryd: -m %d: memory cannot be less than nothing", f.Memory)
	case f.LargePages && !largePagesAllowed():
		return refuse(exitError, "Transparent huge pages support disabled.\nWill use default page size.\n"+
			"Cannot enable large pages on this system\n(There is no support as of this version)")
	case f.ItemMax < itemMinBytes:
		return refuse(exitUsage, "Item max size cannot be less than 1024 bytes.")
	case f.ItemMax > itemSize(f.Memory)<<20/2:
		return refuse(exitUsage, "Cannot set item size limit higher than 1/2 of memory max.")
	case f.ItemMax > itemMaxBytes:
		return refuse(exitUsage, "Cannot set item size limit higher than a gigabyte.")
	case f.AuthFile != nil && *f.AuthFile == "": // in the configuration that is no authentication
		return refuse(exitError, "Could not open authfile [] for reading, error no such file or directory")
	}
	if err := f.checkChunks(x); err != nil {
		return err
	}
	hot := cmp.Or(x.Extended.HotLRUPercent, hotLRUPercentDefault)
	warm := cmp.Or(x.Extended.WarmLRUPercent, warmLRUPercentDefault)
	switch {
	case hot+warm > lruPercentMax:
		return refuse(exitUsage, "hot_lru_pct + warm_lru_pct cannot be more than 80%% combined")
	case x.Extended.TempLRU && x.Extended.NoLRUMaintainer:
		return refuse(exitUsage, "temporary_ttl requires lru_maintainer to be enabled")
	}
	return nil
}

// checkChunks refuses sizes that memcached could not cut its pages into. Our
// pages are cut otherwise, but a command line that one refuses and the other
// takes would be a surprise on the way back.
func (f *flags) checkChunks(x *extended) error {
	if f.ItemMax > slabPageBytes && !x.chunkMaxGiven {
		x.Extended.SlabChunkMaxBytes = slabChunkMaxDefault
	}
	chunkMax := cmp.Or(x.Extended.SlabChunkMaxBytes, slabChunkMaxDefault)
	switch {
	case chunkMax > int(f.ItemMax):
		return refuse(exitUsage, "slab_chunk_max (bytes: %d) cannot be larger than -I (item_size_max %d)",
			chunkMax, f.ItemMax)
	case int(f.ItemMax)%chunkMax != 0:
		return refuse(exitUsage, "-I (item_size_max: %d) must be evenly divisible by slab_chunk_max (bytes: %d)",
			f.ItemMax, chunkMax)
	case slabPageBytes%chunkMax != 0:
		return refuse(exitUsage, "slab_chunk_max (bytes: %d) must divide evenly into %d (slab_page_size)",
			chunkMax, slabPageBytes)
	}
	if x.slabSizes == nil {
		return nil
	}
	sizes, err := parseSlabSizes(*x.slabSizes, int(f.ChunkMin), chunkMax)
	x.Extended.SlabSizes = sizes
	return err
}

// tenants reads the quotas.
func (f *flags) tenants(x *extended) error {
	x.TenantDelimiter = byte(f.TenantDelimiter)
	x.TenantsTracked = int(f.TenantTracked)
	for _, text := range f.TenantQuota {
		q, err := server.ParseTenantQuota(text)
		if err != nil {
			return err
		}
		x.TenantQuotas = append(x.TenantQuotas, q)
	}
	if f.TenantDefault == nil {
		return nil
	}
	q, err := server.ParseTenantDefault(*f.TenantDefault)
	x.TenantDefault = q
	return err
}

// tls turns TLS on. What -o says of it without -Z is as good as not said, in
// memcached without a word.
func (f *flags) tls(x *extended) {
	x.TLS.Enabled = f.TLS
	if !f.TLS && x.TLS != (server.TLS{}) {
		x.warn("-o ssl_...: connections are not encrypted without -Z")
	}
}

// ports settles -p and -U: -U alone moves the TCP port too. In the
// configuration 0 is the default, not off.
func (f *flags) ports(x *extended) {
	if f.UDPPort != nil {
		x.UDPPort = int(*f.UDPPort)
	}
	switch {
	case f.Port != nil:
		x.Port = int(*f.Port)
		x.TCPOff = x.Port == 0
	case x.UDPPort != 0:
		x.Port = x.UDPPort
	}
}
