package fence

import (
	"context"
	"errors"
	"net/http"
)

// Header is the request header with the sequencer of the lease under which the
// client acts, for example "hf1:x:42:orders%2F42".
const Header = "Holdfast-Sequencer"

// HandlerOptions are the options of [Handler]. The zero value of each field is
// its default.
type HandlerOptions struct {
	// Name returns the name of the lock that a request needs, as the store
	// knows it, with the client's prefix. A sequencer of another name is
	// refused with 403. If it returns a name that no lock can have, such as "",
	// every sequencer is refused.
	//
	// Without it any name is accepted and is itself the resource: that serves
	// only where clients are trusted to send the sequencer of the right lock.
	Name func(*http.Request) string

	// Reads reports whether a request only reads, as shared holds may. Nil:
	// GET, HEAD and OPTIONS do. A shared hold's sequencer is refused with 403
	// for any other request.
	Reads func(*http.Request) bool

	// Optional lets requests without the header pass, unguarded, while clients
	// are moved to sending it. Otherwise they are refused with 428.
	Optional bool

	// Check is asked whether a sequencer is current before it may raise a
	// mark: the first request of each hold, in each process. Client's
	// CheckSequencer of package holdfast is such a function. If the hold is
	// gone (driver.ErrNotHeld, driver.ErrBroken) the answer is 409; on any
	// other error it is 503, without the error's text, which may not be for
	// clients to read: also on driver.ErrUncertain, when the store may not have
	// learned of the holder yet. Nil: every token is believed.
	Check func(ctx context.Context, sequencer string) error

	// Gates keep the marks. Nil: the handler's own, kept for ever. Set them to
	// share them with other handlers or to use [Gates.Do] in next.
	Gates *Gates
}

// Handler passes requests on to next unless they act under a hold that a newer
// one has replaced. The answers of a refusal are text/plain:
//
//   - 400 Bad Request: the header is malformed or given twice, or its hold
//     cannot be fenced (no token, a semaphore);
//   - 403 Forbidden: the sequencer is not one for this request, so acquiring
//     the same lock again would not help: another lock's, or a shared one where
//     an exclusive one is needed;
//   - 409 Conflict: the token is stale. The client has lost its lock, and must
//     not retry under the same hold;
//   - 428 Precondition Required (RFC 6585): the header is missing;
//   - 503 Service Unavailable: Check could not tell. The client may retry under the
//     same hold.
//
// The handler knows only the requests that this process has seen since it
// started, and another replica of the service sees others. A request that was
// admitted may still be at work when a newer one is admitted. Where that
// matters, next guards its last step with the sequencer of [FromContext]: by
// [Gates.Do] on the same Gates if the resource is in this process, by
// [AdmitTx] if it is in a database.
//
// Sequencers are not signed, and a guard cannot tell a mistake from malice. A
// client that sends a token far too high closes the resource to all others, and
// one that invents names fills the memory of Gates. Put the handler behind
// authentication, and set Check, which asks the store before a token is
// adopted. A mark that is too high refuses until the process is restarted.
func Handler(next http.Handler, o *HandlerOptions) http.Handler {
	h := &handler{next: next}
	if o != nil {
		h.HandlerOptions = *o
	}
	h.guard.Check, h.guard.Gates = h.Check, h.Gates
	if h.Reads == nil {
		h.Reads = safeMethod
	}
	return h
}

type handler struct {
	HandlerOptions
	guard Guard
	next  http.Handler
}

// ServeHTTP admits the request or answers with the refusal.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	values := r.Header.Values(Header)
	switch {
	case len(values) == 0 && h.Optional:
		h.next.ServeHTTP(w, r)
		return
	case len(values) == 0:
		http.Error(w, "the header "+Header+" is required: the sequencer of the lease under which you act", http.StatusPreconditionRequired)
		return
	case len(values) > 1:
		http.Error(w, "the header "+Header+" must be given once", http.StatusBadRequest)
		return
	}
	use := Use{Reads: h.Reads(r)}
	if h.Name != nil {
		use.Name, use.Named = h.Name(r), true
	}
	s, err := h.guard.Admit(r.Context(), values[0], use)
	if err != nil {
		status, text := answer(err)
		http.Error(w, text, status)
		return
	}
	h.next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), s)))
}

// answer returns the status of a refusal, and its text.
func answer(err error) (status int, text string) {
	switch {
	case errors.Is(err, ErrStale):
		return http.StatusConflict, err.Error()
	case errors.Is(err, ErrWrongHold):
		return http.StatusForbidden, err.Error()
	case errors.Is(err, ErrUnchecked):
		return http.StatusServiceUnavailable, err.Error()
	}
	return http.StatusBadRequest, Header + ": " + err.Error()
}

// safeMethod reports whether the request's method only reads (RFC 9110, section
// 9.2.1). TRACE is left out: it has nothing to do with the resource.
func safeMethod(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}
