package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// etcdLog brings etcd's warnings and errors into our log: each of them once in a
// while, since etcd says the same many times a second when a peer is away.
type etcdLog struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // by message: when it was logged last
	shut bool                 // what etcd says when it is closed says nothing
}

const (
	logAgainInterval = time.Minute
	logMessagesMax   = 256
)

// ordinary are warnings about how we run etcd, and not about how it is: one port
// is enough for few clients, and its logins are not used.
var ordinary = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
}

// due reports whether a message is to be logged.
func (l *etcdLog) due(message string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.said[message]; l.shut || ordinary[message] || ok && now.Sub(at) < logAgainInterval {
		return false
	}
	if l.said == nil || len(l.said) >= logMessagesMax {
		l.said = make(map[string]time.Time)
	}
	l.said[message] = now
	return true
}

// close ends the log.
func (l *etcdLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
}

// zapCore is an etcdLog as zap has it, with what every entry says.
type zapCore struct {
	*etcdLog
	fields []zapcore.Field
}

// Enabled is zapcore.Core.
func (c zapCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With is zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{c.etcdLog, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check is zapcore.Core.
func (c zapCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && c.due(e.Message, e.Time) {
		return to.AddCore(e, c)
	}
	return to
}

// Write is zapcore.Core.
func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	c.log.LogAttrs(context.Background(), level, "etcd: "+e.Message, attributes(append(c.fields[:len(c.fields):len(c.fields)], fields...))...)
	return nil
}

// Sync is zapcore.Core.
func (c zapCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []slog.Attr {
	m := zapcore.NewMapObjectEncoder()
	var attrs []slog.Attr
	for _, f := range fields {
		f.AddTo(m)
		if v, ok := m.Fields[f.Key]; ok {
			attrs = append(attrs, slog.Any(f.Key, v))
		}
	}
	return attrs
}
