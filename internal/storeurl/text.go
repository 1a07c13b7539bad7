package storeurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Max is the length of the longest store URL, in bytes.
const Max = 4096

// Parse parses a store URL. Unlike url.Parse it repeats nothing of the URL in an error, because
// a password that was not escaped may be anywhere in it. For the same reason it refuses an @ behind
// the host: the @ ends a password that contains a slash, a question mark or a hash, of which a part would
// be taken for what follows the host, which is shown.
func Parse(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("store URL is empty: it looks like scheme://host/…")
	case len(raw) > Max:
		return nil, fmt.Errorf("store URL has %d bytes: at most %d are allowed", len(raw), Max)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("store URL cannot be parsed (not shown, as it may hold a password): " +
			"it looks like scheme://user:password@host:port/path?hf.key=value, " +
			"with other characters in user and password %-escaped")
	}
	if u.Scheme == "" {
		return nil, errors.New("store URL has no scheme: it looks like scheme://host/…")
	}
	_, rest, _ := strings.Cut(raw, "//")
	if i := strings.IndexAny(rest, "/?#"); i > 0 && strings.Contains(rest[i:], "@") {
		return nil, errors.New("store URL has an @ behind the host: if it ends a password, " +
			"%-escape the password's special characters; else write %40")
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return nil, errors.New("store URL has a malformed query after the question mark")
	}
	return u, nil
}

// Redact returns the URL as it may be shown. It hides the password, a user without a password (it
// may be a password in the wrong place), and the values of all parameters but hf.* (they may be
// secrets). It hides a fragment, and what follows a scheme without "//": both mean nothing in a
// store URL and may be part of a password.
func Redact(u *url.URL) string {
	r := *u
	if r.Opaque != "" {
		r.Opaque = "xxxxx"
	}
	if r.Fragment != "" {
		r.Fragment, r.RawFragment = "xxxxx", ""
	}
	if _, ok := r.User.Password(); r.User != nil && !ok {
		r.User = url.User("xxxxx")
	}
	q := r.Query()
	for key, values := range q {
		if !strings.HasPrefix(key, "hf.") {
			for i := range values {
				values[i] = "xxxxx"
			}
		}
	}
	r.RawQuery = q.Encode()
	return r.Redacted()
}

// Query returns the URL's parameters, and an error if one is not among known or is given twice. If
// foreign is true, parameters that do not begin with "hf." belong to the client library: Query
// neither checks nor returns them.
func Query(u *url.URL, foreign bool, known []string) (map[string]string, error) {
	params := map[string]string{}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("store URL has a malformed query after the question mark")
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		ours := strings.HasPrefix(key, "hf.")
		switch {
		case !ours && foreign:
			continue
		case !slices.Contains(known, key):
			if slices.Contains(Keys, key) {
				return nil, fmt.Errorf("URL parameter %q is for the client, not for the driver: holdfast.Open takes it", key)
			}
			return nil, fmt.Errorf("unknown URL parameter %q for %s://; known are: %s",
				key, u.Scheme, strings.Join(slices.Concat(known, Keys), ", "))
		case len(query[key]) > 1:
			return nil, fmt.Errorf("URL parameter %q is given %d times; once is right",
				key, len(query[key]))
		}
		params[key] = query[key][0]
	}
	return params, nil
}
