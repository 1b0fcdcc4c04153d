package broker

import (
	"net/http"
	"strings"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/router"
)

// Browsers puts before a handler what pages in browsers need: it answers
// preflight requests, lets the pages of the origins read the answers, and refuses
// the requests of all others. POSTs are left to the router, which judges the same
// by itself; behind Envoy, whose filter does this too, the headers are the same.
func Browsers(origins router.Origins, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := joined(r.Header, "Origin")
		switch {
		case origin == "":
		case origins.Allow(origin):
			if isPreflight(r) {
				preflight(w, origin)
				return
			}
			w = &corsWriter{ResponseWriter: w, origin: origin}
		case r.Method != http.MethodPost:
			w.Header().Set("Vary", "Origin")
			writeJSON(w, http.StatusForbidden, router.ErrOrigin(origin).Body(nil))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers as Envoy does.
func preflight(w http.ResponseWriter, origin string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Methods", mcp.CORSMethods)
	h.Set("Access-Control-Allow-Headers", mcp.CORSRequestHeaders)
	h.Set("Access-Control-Expose-Headers", mcp.CORSResponseHeaders)
	h.Set("Access-Control-Max-Age", mcp.CORSMaxAge)
	h.Set("Vary", "Origin")
	w.WriteHeader(http.StatusOK)
}

// corsWriter lets the page read the answer.
type corsWriter struct {
	http.ResponseWriter
	origin string
	begun  bool
}

// Unwrap lets http.ResponseController flush and set deadlines.
func (w *corsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter. What a backend said about origins
// is about its own.
func (w *corsWriter) WriteHeader(status int) {
	w.begun = true
	h := w.Header()
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			h.Del(name)
		}
	}
	h.Set("Access-Control-Allow-Origin", w.origin)
	h.Set("Access-Control-Expose-Headers", mcp.CORSResponseHeaders)
	h.Add("Vary", "Origin")
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *corsWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // as it is
}
