package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/quarrycache/quarry/server"
)

// millis is a time as Go writes it (30s, 100ms), kept in whole milliseconds.
type millis int64

// Decode implements kong.MapperValue.
func (m *millis) Decode(ctx *kong.DecodeContext) error {
	s, err := word(ctx)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond {
		return refuse(exitUsage, "quarryd: --%s %s: want a time such as 30s or 100ms", ctx.Value.Name, s)
	}
	*m = millis(d.Milliseconds())
	return nil
}

// freshness reads the flags about versions, deadlines and grants.
func (f *flags) freshness(x *extended) error {
	c := &x.Fresh
	c.GrantMaxMillis = int64(f.GrantMaxMS)
	c.RetentionMillis = int64(f.FloorRetention)
	c.SkewMaxMillis = int64(f.ClockSkewMax)
	c.RecordsMax = int(f.FloorsMax)
	c.RateForeground = int(f.FillRateForeground)
	c.RateBackground = int(f.FillRateBackground)
	c.InflightMax = int(f.FillInflight)
	c.Adapt = f.FillAdapt
	if c.EarlyBeta = f.EarlyBeta; c.EarlyBeta == 0 {
		c.EarlyBeta = -1 // never: 0 is the default there
	}
	c.GrantOnly = f.GrantOnly
	for _, text := range f.VersionRange {
		i := strings.LastIndexByte(text, '=')
		n, err := strconv.ParseUint(text[i+1:], 10, 64)
		if i < 0 || err != nil {
			return refuse(exitUsage, "quarryd: --version-range %s: want PREFIX=NUMBER", text)
		}
		c.VersionRanges = append(c.VersionRanges, server.VersionRange{Prefix: text[:i], Max: n})
	}
	return nil
}
