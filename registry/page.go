package registry

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrPosition is the error for a position that no list of that kind has.
var ErrPosition = errors.New("registry: not a position in this list")

// maxPositionName is how much of a name a position holds. Names are shorter,
// URIs may be longer: for those a digest tells the ones apart that begin alike.
const maxPositionName = 1 << 10

// pages is one list by final name, rendered once for all its pages. Paged lists
// have this order, not that of the servers, because only in it a name alone is a
// position that stays right whatever comes and goes between two pages.
type pages struct {
	names []string
	items []byte // the items, each with a comma behind it
	ends  []int  // where each item's comma ends in items
}

func newPages(l *list) *pages {
	entries := make([]*Entry, 0, len(l.all))
	for _, e := range l.all {
		if e.listed() {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return strings.Compare(a.Name, b.Name) })
	p := &pages{}
	for _, e := range entries {
		p.items = append(append(p.items, e.Listed...), ',')
		p.names = append(p.names, e.Name)
		p.ends = append(p.ends, len(p.items))
	}
	return p
}

// AppendPage appends the result object of the list method of kind k to dst: at
// most size items (0 is all) after position, which is empty for the first page.
// next makes the cursor out of the position behind the page; it is not called
// for the last one. The error is ErrPosition.
func (v *View) AppendPage(dst []byte, k Kind, position []byte, size int, next func(position []byte) string) ([]byte, error) {
	p := v.pages[k]()
	from, err := p.after(k, position)
	if err != nil {
		return dst, err
	}
	to := len(p.names)
	if size > 0 {
		to = min(from+size, to)
	}
	dst = append(dst, `{"`...)
	dst = append(dst, k.member()...)
	dst = append(dst, `":[`...)
	if to > from {
		dst = append(dst, p.items[p.start(from):p.ends[to-1]-1]...)
	}
	dst = append(dst, ']')
	if to < len(p.names) {
		dst = append(dst, `,"nextCursor":`...)
		dst = strconv.AppendQuote(dst, next(positionAfter(k, p.names[to-1])))
	}
	return append(dst, '}'), nil
}

func (p *pages) start(i int) int {
	if i == 0 {
		return 0
	}
	return p.ends[i-1]
}

// The forms of a position, its second byte; the first is the kind.
const (
	formName   = 'n' // the name
	formDigest = 'd' // the digest of a long name, and its begin
)

// positionAfter is the position behind the item of that name.
func positionAfter(k Kind, name string) []byte {
	if len(name) <= maxPositionName {
		return append([]byte{byte(k), formName}, name...)
	}
	sum := sha256.Sum256([]byte(name))
	return append(append([]byte{byte(k), formDigest}, sum[:]...), name[:maxPositionName]...)
}

// after returns the index of the first item behind the position.
func (p *pages) after(k Kind, position []byte) (int, error) {
	if len(position) == 0 {
		return 0, nil
	}
	if len(position) < 2 || position[0] != byte(k) {
		return 0, ErrPosition
	}
	rest := position[2:]
	switch {
	case position[1] == formName:
		i, found := slices.BinarySearch(p.names, string(rest))
		if found {
			i++
		}
		return i, nil
	case position[1] != formDigest || len(rest) != sha256.Size+maxPositionName:
		return 0, ErrPosition
	}
	digest, begin := rest[:sha256.Size], string(rest[sha256.Size:])
	i, _ := slices.BinarySearch(p.names, begin)
	for j := i; j < len(p.names) && strings.HasPrefix(p.names[j], begin); j++ {
		if sum := sha256.Sum256([]byte(p.names[j])); bytes.Equal(sum[:], digest) {
			return j + 1, nil
		}
	}
	return i, nil // it is gone: rather again those that begin like it than none of them
}
