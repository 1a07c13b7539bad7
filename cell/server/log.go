package server

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo returns a logger for etcd that writes to ours. What etcd only informs of is for debugging here, and
// so is all of it once the member stops: etcd complains that its listeners are closed.
func zapTo(log *slog.Logger, stopping *atomic.Bool) *zap.Logger {
	return zap.New(slogCore{log: log, stopping: stopping})
}

// slogCore is a core of zap that writes to a logger of package slog.
type slogCore struct {
	log      *slog.Logger
	stopping *atomic.Bool
	fields   []zapcore.Field
}

func (c slogCore) levelOf(l zapcore.Level) slog.Level {
	switch {
	case l < zapcore.WarnLevel || c.stopping.Load():
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelError
}

// Enabled implements zapcore.LevelEnabler.
func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), c.levelOf(l))
}

// With implements zapcore.Core.
func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log, c.stopping, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	all := zapcore.NewMapObjectEncoder()
	for _, f := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		f.AddTo(all)
	}
	attrs := make([]slog.Attr, 0, len(all.Fields))
	for key, value := range all.Fields {
		attrs = append(attrs, slog.Any(key, value))
	}
	c.log.LogAttrs(context.Background(), c.levelOf(e.Level), "etcd: "+e.Message, attrs...)
	return nil
}

// Sync implements zapcore.Core.
func (slogCore) Sync() error { return nil }
