package store_test

import (
	"fmt"

	"github.com/quarrycache/quarry/server/store"
)

func ExampleStore_Tenants() {
	s, err := store.Open(store.Config{
		LimitBytes: 16 << 20,
		Tenants: store.TenantConfig{
			Delimiter: ':',
			Quotas:    []store.TenantQuota{{Name: "web", Quota: store.Quota{ValueMaxBytes: 5}}},
		},
	})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	now := store.Time(1_700_000_000_000)
	for _, set := range [][2]string{{"web:1", "short"}, {"web:2", "too long"}, {"db:1", "as long as you like"}} {
		s.Set(store.KeyOf([]byte(set[0])), []byte(set[1]), &store.SetOptions{}, now)
	}
	rows, _ := s.Tenants(10)
	for _, t := range rows {
		fmt.Printf("%s: %d items of %d bytes, %d refused\n", t.Name, t.Items, t.Bytes, t.RefusedValue)
	}
	// Output:
	// web: 1 items of 38 bytes, 1 refused
	// db: 1 items of 51 bytes, 0 refused
}
