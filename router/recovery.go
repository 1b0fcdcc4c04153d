package router

import (
	"errors"
	"strings"
)

// Recovery is the context that a direct call carries, sealed, to the broker
// when Envoy retries it there: whose call it is and for which server. What the
// broker gets beside it is the request as the backend was to get it.
type Recovery struct {
	// Token is the gateway's session id.
	Token string
	// Server is the server's name, Principal who the caller is.
	Server, Principal string
}

var errRecovery = errors.New("not a recovery context")

// Append appends the form that is sealed.
func (r Recovery) Append(dst []byte) []byte {
	dst = append(dst, r.Server...)
	dst = append(dst, 0)
	dst = append(dst, r.Principal...)
	dst = append(dst, 0)
	return append(dst, r.Token...)
}

// ParseRecovery is the inverse of [Recovery.Append].
func ParseRecovery(plain []byte) (Recovery, error) {
	part := strings.Split(string(plain), "\x00")
	if len(part) != 3 {
		return Recovery{}, errRecovery
	}
	return Recovery{Server: part[0], Principal: part[1], Token: part[2]}, nil
}
