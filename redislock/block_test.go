package redislock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// wide takes a hold with a block of tokens.
func (p *plainTest) wide(owner string) driver.Grant {
	p.Helper()
	req := p.request(owner)
	req.Tokens, req.TTL = tokenBlock, 2*time.Millisecond
	g, err := p.Try(p.Context(), req)
	if err != nil || g.Block != tokenBlock || g.Handle != nil {
		p.Fatalf("Try with %d tokens gave %+v, %v", tokenBlock, g, err)
	}
	return g
}

// TestBlockEnds: the tokens of a block that were not used are given out again when the hold is
// released, so the tokens stay at the clock. If the hold ends in another way, nobody knows how
// many were used, and all of them count (P3), also when the clock is set back.
func TestBlockEnds(t *testing.T) {
	const back = time.Second
	for name, c := range map[string]struct {
		end  func(*plainTest, driver.Grant)
		used driver.Token // of the block
	}{
		"released": {func(p *plainTest, g driver.Grant) {
			g.Token, g.HandedOver = g.Token+6, true
			p.release(g, nil)
		}, 7},
		"renewed and released": {func(p *plainTest, g driver.Grant) {
			g.Token, g.HandedOver = g.Token+6, true
			if r := p.Renew(p.Context(), []driver.Grant{g})[0]; r.Err != nil {
				p.Error(r.Err)
			}
			g.Token += 2
			p.release(g, nil)
		}, 9},
		"withdrawn": {func(p *plainTest, g driver.Grant) {
			g.Token = 0
			p.release(g, nil)
		}, tokenBlock},
		"broken": {func(p *plainTest, g driver.Grant) {
			if err := p.Break(p.Context(), "n", g.Token); err != nil {
				p.Error(err)
			}
		}, tokenBlock},
		"vanished": {func(p *plainTest, g driver.Grant) {
			p.clock.advance(p, back+g.TTL) // sooner than the clock has come to the end of the block
		}, tokenBlock},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlainTest(t)
			g := p.wide("first")
			c.end(p, g)
			p.clock.advance(p, -back)
			if next := p.try("next", nil); next.Token != g.Token+c.used {
				t.Errorf("P3: the next token is %d, not %d", next.Token-g.Token, c.used)
			}
		})
	}
}
