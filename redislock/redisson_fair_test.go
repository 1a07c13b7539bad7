package redislock

func (r *redissonTest) fairClient() fair {
	r.Helper()
	d, err := New(r.Context(), dialResp(r, r.server.Addr), &Options{Layout: Redisson, Redisson: RedissonFair})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { d.Close() })
	return d.(fair)
}
