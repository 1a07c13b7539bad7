package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// cookie is the name of what a browser has that has logged in.
const cookie = "holdfast_console"

// Guard returns a handler that decides who may look at a console, where nothing else does. With a token a browser logs in by
// it, and has a cookie until the process ends. Without one, everybody may look who reaches it by a loopback address: a
// page of evil.example, which has just become a name of this host, may not.
func Guard(next http.Handler, token string) http.Handler {
	session := rand.Text()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w)
		has, err := r.Cookie(cookie)
		switch {
		case token == "" && !storeurl.Loopback(r.Host):
			http.Error(w, "the console is asked by a name that is not of this host", http.StatusMisdirectedRequest)
		case token == "", err == nil && same(has.Value, session), r.URL.Path == "/console/style.css", r.URL.Path == "/console/icon.svg":
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost || r.URL.Path != "/console/login":
			write(w, http.StatusUnauthorized, "page.html", page{Title: "log in", Kind: "login"})
		case new(http.CrossOriginProtection).Check(r) != nil || !same(r.PostFormValue("token"), token):
			write(w, http.StatusForbidden, "page.html", page{Title: "log in", Kind: "login", Message: "This is not the console's token."})
		default:
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: session, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
			http.Redirect(w, r, "/", http.StatusSeeOther)
		}
	})
}

// same compares two secrets in a time that tells nothing of them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(strings.TrimSpace(a))), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
