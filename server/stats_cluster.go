package server

// clusterFigure is a figure of a node: its name in stats cluster and in /metrics.
type clusterFigure struct {
	stat, metric string
	kind         metricType
	help         string
	value        uint64
}

// figures are what can be counted of a node.
func (n *node) figures() []clusterFigure {
	var owned, copied, nodes, epoch uint64
	if v := n.now.Load(); v != nil {
		epoch, nodes = uint64(v.m.Epoch), uint64(len(v.m.Nodes))
		for _, r := range v.roles {
			switch r {
			case roleOwner:
				owned++
			case roleCopy:
				copied++
			}
		}
	}
	one := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	has, wants := n.budget.figures()
	h := &n.srv.hot
	return []clusterFigure{
		{"epoch_number", "quarry_cluster_epoch", gaugeType, "Epoch of the map in use, 0 for none.", epoch},
		{"nodes", "quarry_cluster_nodes", gaugeType, "Nodes in the map.", nodes},
		{"buckets_owned", "quarry_cluster_buckets_owned", gaugeType, "Buckets that this node owns.", owned},
		{"buckets_copied", "quarry_cluster_buckets_copied", gaugeType, "Buckets that this node has copies of.", copied},
		{"map_confirmed", "quarry_cluster_map_confirmed", gaugeType, "1: the map store, or a majority of the nodes with this one among them, know of no newer map, and of those that answer none has another one of its epoch. Without that there are no grants.", one(n.isConfirmed())},
		{"newer_epoch_seen", "quarry_cluster_newer_epoch", gaugeType, "An epoch above that of the map in use that was seen, which pauses grants; 0 for none.", n.newer.Load()},
		{"map_conflict", "quarry_cluster_map_conflict", gaugeType, "1: ALARM, there is another map of this epoch.", one(n.conflict.Load() != nil)},
		{"conflicts", "quarry_cluster_map_conflicts_total", counterType, "Times that there was another map of the epoch in use.", n.conflictSeen.Load()},
		{"store_behind", "quarry_cluster_store_behind_total", counterType, "ALARM: maps from the store that were older than the one in use.", n.storeBehind.Load()},
		{"maps_applied", "quarry_cluster_maps_applied_total", counterType, "New maps.", n.applied.Load()},
		{"maps_not_kept", "quarry_cluster_maps_not_kept_total", counterType, "Of them, those that could not be written to --data.", n.unkept.Load()},
		{"buckets_hidden", "quarry_cluster_buckets_hidden_total", counterType, "Buckets whose items went with a change of owner.", n.hidden.Load()},
		{"relayed", "quarry_cluster_relayed_total", counterType, "Requests for keys of other nodes, sent on to them.", n.relayed.Load()},
		{"relay_failures", "quarry_cluster_relay_failures_total", counterType, "Of them, those that had no answer.", n.relayFailed.Load()},
		{"moved", "quarry_cluster_moved_total", counterType, "Clients that were told that a key is elsewhere.", n.moved.Load()},
		{"copy_reads", "quarry_cluster_copy_reads_total", counterType, "Reads of copies.", n.copyReads.Load()},
		{"copies_sent", "quarry_cluster_copies_sent_total", counterType, "What copies elsewhere were told.", n.copies.sent.Load()},
		{"copies_unsent", "quarry_cluster_copies_unsent_total", counterType, "What they did not take, and are told again: they drop the bucket.", n.copies.unsent.Load()},
		{"copies_received", "quarry_cluster_copies_received_total", counterType, "What this node was told as a copy.", n.copies.got.Load()},
		{"copy_gaps", "quarry_cluster_copy_gaps_total", counterType, "Buckets that were dropped here because something was missing.", n.copies.gaps.Load()},
		{"split_refusals", "quarry_cluster_split_refusals_total", counterType, "Plain writes to split keys, refused.", n.splitRefused.Load()},
		{"share_foreground", "quarry_cluster_share_foreground", gaugeType, "This node's part of the map's budget of grants for callers that wait, a second; 0 no limit.", uint64(has.foreground)},
		{"share_background", "quarry_cluster_share_background", gaugeType, "The same to refresh ahead.", uint64(has.background)},
		{"share_foreground_next", "quarry_cluster_share_foreground_next", gaugeType, "What the foreground share rises to when all nodes have this map.", uint64(wants.foreground)},
		{"share_background_next", "quarry_cluster_share_background_next", gaugeType, "The same of the background share.", uint64(wants.background)},
		{"hot_key_reports", "quarry_cluster_hot_key_reports_total", counterType, "Reports of what near caches hide.", h.reports.Load()},
		{"hot_key_reports_dropped", "quarry_cluster_hot_key_reports_dropped_total", counterType, "Of them, those for which there was no room.", h.reportsDropped.Load()},
	}
}

// appendClusterStats answers stats cluster.
func (s *Server) appendClusterStats(dst []byte) []byte {
	l := statLines(dst)
	n := s.node
	l.text("node_id", n.cfg.NodeID)
	if v := n.now.Load(); v != nil {
		l.text("cluster", v.m.Cluster)
		l.text("epoch", v.m.Epoch.String())
		l.text("digest", v.digest.String())
		l.num("node_set", uint64(v.m.NodeSet))
		l.yes("member", v.member)
	}
	l.yes("confirmed", n.isConfirmed())
	l.yes("conflict", n.conflict.Load() != nil)
	l.yes("plain_values_withheld", n.withheld.Load())
	for _, f := range n.figures() {
		l.num(f.stat, f.value)
	}
	return append(l, statsEnd...)
}

// cluster writes how a node does.
func (e *exposition) cluster(n *node) {
	for _, f := range n.figures() {
		e.one(f.metric, f.kind, f.help, f.value)
	}
}

// hot writes how hot the hottest key is; which one it is stats hotkeys tells.
func (e *exposition) hot(h *hotKeys) {
	reads, writes := uint64(0), uint64(0)
	for _, k := range h.keys() {
		reads, writes = max(reads, uint64(k.reads)), max(writes, uint64(k.writes))
	}
	e.one("quarry_hottest_key_reads_per_second", gaugeType, "Reads a second of the key that is read most, by samples.", reads)
	e.one("quarry_hottest_key_writes_per_second", gaugeType, "Writes a second of the key that is written most, by samples.", writes)
}
