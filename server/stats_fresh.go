package server

import (
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// clockFigures is how the guard over the clock does.
type clockFigures struct {
	Distrusted        bool
	OffsetMillis      int64 // from the clock of TTLs to that of deadlines
	Distrusts, Resets uint64
}

func (g *clockGuard) stats() clockFigures {
	return clockFigures{g.distrusted.Load(), g.offset.Load(), g.distrusts.Load(), g.rebases.Load()}
}

func (g *clockGuard) resetStats() {
	g.distrusts.Store(0)
	g.rebases.Store(0)
}

// freshFigure is a figure of freshness: a line of stats freshness, and a metric.
type freshFigure struct {
	stat   string
	metric string
	kind   metricType
	help   string   // of the first of the metric's
	labels []string // of the metric: name and value
	value  uint64
}

// reasons are what fills and stores are refused for, in the order in which that is
// judged.
var reasons = [...]store.Reason{
	store.ReasonIncarnation, store.ReasonOwnership, store.ReasonToken, store.ReasonExpired, store.ReasonClock,
	store.ReasonPast, store.ReasonFloor, store.ReasonUnequal, store.ReasonQuota, store.ReasonGrantOnly,
}

// freshFigures are all that count or are counted, but for times.
func (sn *snapshot) freshFigures() []freshFigure {
	f, c := &sn.store.Fresh, &sn.clock
	figures := []freshFigure{
		{"grants_foreground", "quarry_grants_total", counterType, "Grants to fill a key, by class.", []string{"class", "foreground"}, f.GrantsForeground},
		{"grants_background", "quarry_grants_total", counterType, "", []string{"class", "background"}, f.GrantsBackground},
		{"grants_strong", "quarry_grants_total", counterType, "", []string{"class", "strong"}, f.GrantsStrong},
		{"grants_early", "quarry_grants_early_total", counterType, "Of them, before the soft deadline, as the server chose.", nil, f.GrantsEarly},
		{"waits", "quarry_grant_waits_total", counterType, "Lookups for which another caller had the grant.", nil, f.Waits},
		{"denials", "quarry_grant_denials_total", counterType, "Lookups for which a grant was due, and the budget was spent.", nil, f.Denials},
		{"absent_hits", "quarry_absent_hits_total", counterType, "Lookups that were told that there is no such row.", nil, f.AbsentHits},
		{"fills", "quarry_fills_total", counterType, "What was stored with a version, by kind.", []string{"kind", "value"}, f.Fills},
		{"revalidations", "quarry_fills_total", counterType, "", []string{"kind", "revalidation"}, f.Revalidations},
		{"absences", "quarry_fills_total", counterType, "", []string{"kind", "absence"}, f.Absences},
		{"versioned_writes", "quarry_fills_total", counterType, "", []string{"kind", "write"}, f.VersionedWrites},
		{"given_back", "quarry_grants_given_back_total", counterType, "Grants given back, because the source could not be read.", nil, f.GivenBack},
		{"grants_expired", "quarry_grants_expired_total", counterType, "Grants whose time passed without a word.", nil, f.TokensExpired},
		{"notices", "quarry_notices_total", counterType, "Notices of a version, by kind.", []string{"kind", "stale"}, f.Notices},
		{"takedowns", "quarry_notices_total", counterType, "", []string{"kind", "takedown"}, f.Takedowns},
		{"floor_raises", "quarry_floor_raises_total", counterType, "Floors raised, by a notice or what was stored.", nil, f.Raises},
		{"floors_dropped", "quarry_floors_dropped_total", counterType, "Floors dropped for want of room, before their time.", nil, f.FloorsDropped},
		{"out_of_range", "quarry_version_out_of_range_total", counterType, "Lookups with a minimum version out of range.", nil, f.OutOfRange},
	}
	for i, r := range reasons {
		help := ""
		if i == 0 {
			help = "Fills and stores refused, by reason."
		}
		name := "r" + strconv.Itoa(int(r))
		figures = append(figures, freshFigure{"refused_" + name, "quarry_fills_refused_total", counterType, help, []string{"reason", name}, f.Refused[r]})
	}
	trusted := uint64(1)
	if c.Distrusted {
		trusted = 0
	}
	return append(figures,
		freshFigure{"grants_in_flight", "quarry_grants_in_flight", gaugeType, "Grants out now.", nil, uint64(f.Inflight)},
		freshFigure{"grants_in_flight_max", "quarry_grants_in_flight_max", gaugeType, "The most that may be out now; 0 is no limit.", nil, uint64(f.InflightMax)},
		freshFigure{"versioned_items", "quarry_versioned_items", gaugeType, "Items that carry a version, a deadline or a floor.", nil, f.Versioned},
		freshFigure{"records", "quarry_fresh_records", gaugeType, "Keys whose floor or grant is kept apart from an item.", nil, uint64(f.Records)},
		freshFigure{"records_max", "quarry_fresh_records_max", gaugeType, "The most of them there can be.", nil, uint64(f.RecordsMax)},
		freshFigure{"floors_unknown", "quarry_floors_unknown_shards", gaugeType, "Shards in which floors are unknown now.", nil, uint64(f.FloorsUnknown)},
		freshFigure{"clock_trusted", "quarry_clock_trusted", gaugeType, "1, or 0 while nothing with a deadline is served.", nil, trusted},
		freshFigure{"clock_distrusts", "quarry_clock_distrusts_total", counterType, "Times that the clock was found to be wrong.", nil, c.Distrusts},
		freshFigure{"clock_resets", "quarry_clock_resets_total", counterType, "Times that the clock of deadlines was set anew.", nil, c.Resets},
	)
}

// freshTimes are the figures that are times, in ms.
func (sn *snapshot) freshTimes() []freshTime {
	f := &sn.store.Fresh
	return []freshTime{
		{"fill_ms", "quarry_fill_seconds", "How long a fill takes, from grant to fill, in a mean over the last few.", f.FillMillis},
		{"oldest_floor_ms", "quarry_oldest_floor_seconds", "Since the oldest floor without a value was raised.", f.OldestFloorMillis},
		{"clock_offset_ms", "quarry_clock_offset_seconds", "From the clock of TTLs to that of deadlines.", sn.clock.OffsetMillis},
	}
}

type freshTime struct {
	stat, metric, help string
	millis             int64
}

// appendFreshStats answers stats freshness, which memcached does not have.
func (s *Server) appendFreshStats(dst []byte, sn *snapshot) []byte {
	l := statLines(dst)
	for _, f := range sn.freshFigures() {
		l.num(f.stat, f.value)
	}
	for _, f := range sn.freshTimes() {
		l.text(f.stat, strconv.FormatInt(f.millis, 10))
	}
	l.num("records_bytes", uint64(sn.store.Fresh.RecordBytes))
	c := s.store.FreshLimits()
	l.num("grant_max_ms", uint64(c.GrantMaxMillis))
	l.num("floor_retention_ms", uint64(c.RetentionMillis))
	l.num("clock_skew_max_ms", uint64(c.SkewMaxMillis))
	return append(l, statsEnd...)
}

// freshness writes how versions, deadlines and grants do.
func (e *exposition) freshness(sn *fullSnapshot) {
	before := ""
	for _, f := range sn.freshFigures() {
		if f.metric != before {
			e.family(f.metric, f.kind, f.help)
			before = f.metric
		}
		e.num(f.metric, f.value, f.labels...)
	}
	for _, f := range sn.freshTimes() {
		e.oneFloat(f.metric, gaugeType, f.help, float64(f.millis)/1000)
	}
}
