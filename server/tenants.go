package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Quota is what a tenant may use; see Config.TenantDelimiter.
type Quota = store.Quota

// TenantQuota is the quota of the tenant with a name.
type TenantQuota = store.TenantQuota

// The flags of tenants.
const (
	flagTenantDelimiter = "--tenant-delimiter"
	flagTenantQuota     = "--tenant-quota"
	flagTenantDefault   = "--tenant-default"
	flagTenantTracked   = "--tenant-tracked"
)

// tenantsShownMax bounds the tenants without a quota of their own that
// stats tenants shows.
const tenantsShownMax = 100

// ParseTenantQuota reads NAME=LIMITS, a value of --tenant-quota. The last =
// ends the name, which may be empty. The error is a *ConfigError.
func ParseTenantQuota(text string) (TenantQuota, error) {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return TenantQuota{}, tenantError(flagTenantQuota, text, "want NAME=LIMITS")
	}
	q, what := parseQuota(text[i+1:])
	if what != "" {
		return TenantQuota{}, tenantError(flagTenantQuota, text, what)
	}
	return TenantQuota{Name: text[:i], Quota: q}, nil
}

// ParseTenantDefault reads LIMITS, the value of --tenant-default. The error is
// a *ConfigError.
func ParseTenantDefault(text string) (Quota, error) {
	q, what := parseQuota(text)
	if what != "" {
		return Quota{}, tenantError(flagTenantDefault, text, what)
	}
	return q, nil
}

// parseQuota reads limits such as memory:64m,value:100k,rate:1000. No text is
// no limits. what is what is wrong.
func parseQuota(text string) (q Quota, what string) {
	if text == "" {
		return q, ""
	}
	for _, limit := range strings.Split(text, ",") {
		word, digits, _ := strings.Cut(limit, ":")
		unit := int64(1)
		if word != "rate" && word != "grants" {
			digits, unit = cutUnit(digits)
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit {
			return q, fmt.Sprintf("%s is no limit", limit)
		}
		switch n *= unit; word {
		case "memory":
			q.MemoryBytes = n
		case "value":
			q.ValueMaxBytes = int(n)
		case "rate":
			q.NewKeysPerSecond = int(n)
		case "grants":
			q.GrantsInFlight = int(n)
		default:
			return q, fmt.Sprintf("%s is no limit: want memory, value, rate or grants", limit)
		}
	}
	return q, ""
}

// cutUnit takes k, m or g off a number of bytes.
func cutUnit(s string) (digits string, unit int64) {
	if s == "" {
		return s, 1
	}
	switch s[len(s)-1] {
	case 'k', 'K':
		unit = 1 << 10
	case 'm', 'M':
		unit = 1 << 20
	case 'g', 'G':
		unit = 1 << 30
	default:
		return s, 1
	}
	return s[:len(s)-1], unit
}

func tenantError(flag, value, what string) *ConfigError {
	return &ConfigError{Flag: flag, Value: value, Line: what, Exit: ExitUsage}
}

// validateTenants is the part of Validate about tenants.
func (c *Config) validateTenants() error {
	d := c.TenantDelimiter
	switch {
	case d == 0 && len(c.TenantQuotas) > 0:
		return tenantError(flagTenantQuota, c.TenantQuotas[0].Name, "there are no tenants without "+flagTenantDelimiter)
	case d == 0 && c.TenantDefault != Quota{}:
		return tenantError(flagTenantDefault, describeQuota(c.TenantDefault), "there are no tenants without "+flagTenantDelimiter)
	case d == 0:
		return nil
	case d <= ' ' || d > '~':
		return tenantError(flagTenantDelimiter, strconv.Quote(string([]byte{d})), "want a character of ASCII that can be seen")
	case c.TenantsTracked < 0 || c.TenantsTracked > store.TenantTrackedMax:
		return tenantError(flagTenantTracked, strconv.Itoa(c.TenantsTracked), fmt.Sprintf("want 1 to %d", store.TenantTrackedMax))
	case len(c.TenantQuotas) > store.TenantQuotasMax:
		return tenantError(flagTenantQuota, c.TenantQuotas[store.TenantQuotasMax].Name,
			fmt.Sprintf("there are more than %d", store.TenantQuotasMax))
	}
	seen := make(map[string]bool)
	for _, q := range c.TenantQuotas {
		what := quotaFault(q.Quota)
		switch {
		case what != "":
		case seen[q.Name]:
			what = "this tenant has a quota already"
		case strings.IndexByte(q.Name, d) >= 0:
			what = fmt.Sprintf("the name has the delimiter %c in it", d)
		case len(q.Name) >= meta.KeyMax:
			what = "no key is so long"
		}
		if what != "" {
			return tenantError(flagTenantQuota, q.Name, what)
		}
		seen[q.Name] = true
	}
	if what := quotaFault(c.TenantDefault); what != "" {
		return tenantError(flagTenantDefault, describeQuota(c.TenantDefault), what)
	}
	return nil
}

// quotaFault is what is wrong with q, or "".
func quotaFault(q Quota) string {
	switch {
	case q.MemoryBytes < 0 || q.ValueMaxBytes < 0 || q.NewKeysPerSecond < 0 || q.GrantsInFlight < 0:
		return "a limit must not be negative"
	case q.NewKeysPerSecond > store.TenantRateMax:
		return fmt.Sprintf("the rate must not be over %d", store.TenantRateMax)
	}
	return ""
}

// describeQuota is q as it is written on the command line.
func describeQuota(q Quota) string {
	return fmt.Sprintf("memory:%d,value:%d,rate:%d,grants:%d", q.MemoryBytes, q.ValueMaxBytes, q.NewKeysPerSecond, q.GrantsInFlight)
}

// appendTenantStats answers stats tenants: those with a quota of their own,
// the largest of the others, and the rest as one.
func (s *Server) appendTenantStats(dst []byte) []byte {
	rows, other := s.store.Tenants(tenantsShownMax)
	l := statLines(dst)
	l.text("delimiter", string([]byte{s.cfg.TenantDelimiter}))
	for i := range rows {
		l.tenant(string(appendTenantName(nil, rows[i].Name))+":", &rows[i])
	}
	l.tenant("other_", &other)
	return append(l, statsEnd...)
}

func (l *statLines) tenant(prefix string, t *store.TenantStats) {
	for _, row := range []struct {
		name string
		v    uint64
	}{
		{"items", t.Items},
		{"bytes", t.Bytes},
		{"grants", t.Grants},
		{"quota_memory", uint64(t.Quota.MemoryBytes)},
		{"quota_value", uint64(t.Quota.ValueMaxBytes)},
		{"quota_rate", uint64(t.Quota.NewKeysPerSecond)},
		{"quota_grants", uint64(t.Quota.GrantsInFlight)},
		{"hits", t.Hits},
		{"misses", t.Misses},
		{"sets", t.Sets},
		{"evicted", t.Evicted},
		{"evicted_own", t.EvictedOwn},
		{"refused_memory", t.RefusedMemory},
		{"refused_rate", t.RefusedRate},
		{"refused_value", t.RefusedValue},
	} {
		l.num(prefix+row.name, row.v)
	}
}

// appendTenantName appends name so that it is one word: keys sent as base64
// may have any bytes in them.
func appendTenantName(dst []byte, name string) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || c == '%' {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
