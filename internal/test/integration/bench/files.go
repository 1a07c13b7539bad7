package bench

import "context"

func init() {
	stores["files"] = &store{
		name: "files", ours: "holdfast", work: func(context.Context, string) (served, error) { return served{}, nil },
		peers: []peer{
			{name: "holdfast", open: func(ctx context.Context, dir string) (Locker, error) { return openHoldfast(ctx, "file://"+dir) }},
		},
	}
}
