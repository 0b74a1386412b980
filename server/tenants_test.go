package server

import (
	"errors"
	"testing"
)

func TestParseTenantQuota(t *testing.T) {
	for _, tt := range []struct {
		text string
		want TenantQuota
		err  string
	}{
		{"web=memory:64m,value:100k,rate:1000", TenantQuota{Name: "web", Quota: Quota{MemoryBytes: 64 << 20, ValueMaxBytes: 100 << 10, NewKeysPerSecond: 1000}}, ""},
		{"web=memory:2G", TenantQuota{Name: "web", Quota: Quota{MemoryBytes: 2 << 30}}, ""},
		{"web=value:5", TenantQuota{Name: "web", Quota: Quota{ValueMaxBytes: 5}}, ""},
		{"web=", TenantQuota{Name: "web"}, ""},
		{"=rate:1", TenantQuota{Name: "", Quota: Quota{NewKeysPerSecond: 1}}, ""},
		{"a=b=rate:1", TenantQuota{Name: "a=b", Quota: Quota{NewKeysPerSecond: 1}}, ""},
		{"web", TenantQuota{}, "server: --tenant-quota web: want NAME=LIMITS"},
		{"web=memory", TenantQuota{}, "server: --tenant-quota web=memory: memory is no limit"},
		{"web=memory:m", TenantQuota{}, "server: --tenant-quota web=memory:m: memory:m is no limit"},
		{"web=memory:-1", TenantQuota{}, "server: --tenant-quota web=memory:-1: memory:-1 is no limit"},
		{"web=memory:9000000000g", TenantQuota{}, "server: --tenant-quota web=memory:9000000000g: memory:9000000000g is no limit"},
		{"web=rate:1k", TenantQuota{}, "server: --tenant-quota web=rate:1k: rate:1k is no limit"},
		{"web=memory:1,keys:3", TenantQuota{}, "server: --tenant-quota web=memory:1,keys:3: keys:3 is no limit: want memory, value, rate or grants"},
	} {
		got, err := ParseTenantQuota(tt.text)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: got %+v, %q\nwant %+v, %q", tt.text, got, text, tt.want, tt.err)
		}
	}
	if got, err := ParseTenantDefault("rate:7"); got != (Quota{NewKeysPerSecond: 7}) || err != nil {
		t.Errorf("default: got %+v, %v", got, err)
	}
}

func TestValidateTenants(t *testing.T) {
	quotas := func(names ...string) (q []TenantQuota) {
		for _, n := range names {
			q = append(q, TenantQuota{Name: n})
		}
		return q
	}
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{TenantQuotas: quotas("a")}, "server: --tenant-quota a: there are no tenants without --tenant-delimiter"},
		{Config{TenantDefault: Quota{ValueMaxBytes: 1}}, "server: --tenant-default memory:0,value:1,rate:0,grants:0: there are no tenants without --tenant-delimiter"},
		{Config{TenantDelimiter: ' '}, `server: --tenant-delimiter " ": want a character of ASCII that can be seen`},
		{Config{TenantDelimiter: ':', TenantsTracked: 1 << 20}, "server: --tenant-tracked 1048576: want 1 to 16384"},
		{Config{TenantDelimiter: ':', TenantQuotas: quotas("a", "a")}, "server: --tenant-quota a: this tenant has a quota already"},
		{Config{TenantDelimiter: ':', TenantQuotas: quotas("a:b")}, "server: --tenant-quota a:b: the name has the delimiter : in it"},
		{Config{TenantDelimiter: ':', TenantQuotas: []TenantQuota{{Name: "a", Quota: Quota{NewKeysPerSecond: 2e9}}}}, "server: --tenant-quota a: the rate must not be over 1000000000"},
		{Config{TenantDelimiter: ':', TenantDefault: Quota{MemoryBytes: -1}}, "server: --tenant-default memory:-1,value:0,rate:0,grants:0: a limit must not be negative"},
	} {
		err := tt.cfg.Validate()
		var ce *ConfigError
		if !errors.As(err, &ce) || err.Error() != tt.want || ce.Exit != ExitUsage {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	ok := Config{TenantDelimiter: '/', TenantQuotas: quotas("a", ""), TenantDefault: Quota{NewKeysPerSecond: 1}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}
