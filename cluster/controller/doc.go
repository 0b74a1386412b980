// Package controller is quarry control: the control plane of a cluster, for
// those who run no etcd of their own.
//
//	quarry control ─┬─ etcd's server: the map, leases, agreement among three
//	                └─ one of them is active: it watches the nodes
//
// It runs etcd's own server in this process, alone or as one of three or five
// that agree, so that any client of etcd can talk to it. The active controller is
// the one that holds a lease; it says in its log which nodes come and go, which
// lag behind the map, and when the store has lost maps that nodes still know.
//
// Losing it stops changes of the map, and nothing else: nodes serve from the
// map that they have.
package controller
