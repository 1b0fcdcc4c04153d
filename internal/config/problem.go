package config

import (
	"fmt"
	"sort"
	"strings"
)

// maxErrors is how many errors are reported at once.
const maxErrors = 50

// Error is one mistake in a configuration.
type Error struct {
	// File is the name that the configuration was read by.
	File string
	// Line and Column are where it is, from 1; 0 when the file as a whole is
	// meant.
	Line, Column int
	// Path is the key, as "servers[1].url"; empty for the file as a whole.
	Path string
	// Message says what was expected. It never holds a value from the
	// environment or of a header.
	Message string
}

// Error gives "file:line:column: path: message".
func (e *Error) Error() string { return format(e.File, e.Line, e.Column, e.Path, e.Message) }

// Errors are all mistakes found, in the order of the file; never empty.
type Errors []*Error

// Error gives one line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes errors.As find each *Error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i := range e {
		out[i] = e[i]
	}
	return out
}

// Warning is something in a configuration that has not the effect that its
// author may expect. The configuration is in force all the same.
type Warning struct {
	// File, Line, Column and Path are where it is, as in Error.
	File         string
	Line, Column int
	Path         string
	// Message says what happens instead.
	Message string
}

// String gives "file:line:column: path: message".
func (w Warning) String() string { return format(w.File, w.Line, w.Column, w.Path, w.Message) }

func format(file string, line, column int, path, message string) string {
	var b strings.Builder
	b.WriteString(file)
	if line > 0 {
		fmt.Fprintf(&b, ":%d:%d", line, column)
	}
	b.WriteString(": ")
	if path != "" {
		b.WriteString(path + ": ")
	}
	b.WriteString(message)
	return b.String()
}

// problems collects what is wrong with one file. It is used by one goroutine.
type problems struct {
	file     string
	errors   Errors
	warnings []Warning
	// places are the keys and items that the file has, by path.
	places map[string]position
}

// place tells where a path is; of a key that the file lacks, where its nearest
// parent is.
func (p *problems) place(path string) position {
	for path != "" {
		if pos, ok := p.places[path]; ok {
			return pos
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return p.places[""]
}

// has tells whether the file has the path.
func (p *problems) has(path string) bool {
	_, ok := p.places[path]
	return ok
}

func (p *problems) errorf(path, format string, args ...any) {
	p.errorAt(p.place(path), path, format, args...)
}

func (p *problems) errorAt(pos position, path, format string, args ...any) {
	p.errors = append(p.errors, &Error{p.file, pos.line, pos.column, path, fmt.Sprintf(format, args...)})
}

func (p *problems) warnf(path, format string, args ...any) {
	pos := p.place(path)
	p.warnings = append(p.warnings, Warning{p.file, pos.line, pos.column, path, fmt.Sprintf(format, args...)})
}

// err returns the errors that were collected, or nil, and brings errors and
// warnings into the order of the file.
func (p *problems) err() error {
	sort.SliceStable(p.warnings, func(i, j int) bool {
		a, b := p.warnings[i], p.warnings[j]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	if len(p.errors) == 0 {
		return nil
	}
	sort.SliceStable(p.errors, func(i, j int) bool {
		a, b := p.errors[i], p.errors[j]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	if more := len(p.errors) - maxErrors; more > 0 {
		p.errors = append(p.errors[:maxErrors:maxErrors], &Error{File: p.file, Message: fmt.Sprintf("and %d more errors", more)})
	}
	return p.errors
}

// show quotes a piece of the file for a message, shortened.
func show(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// didYouMean gives ` (did you mean "x"?)` for the candidate nearest to what was
// written, or nothing when none is near.
func didYouMean(got string, candidates []string) string {
	best, name := len(got)/3+1, ""
	for _, c := range candidates {
		if d := distance(strings.ToLower(got), strings.ToLower(c)); d <= best && (name == "" || d < best) {
			best, name = d, c
		}
	}
	if name == "" || len(got) > 60 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", name)
}

// distance is the edit distance (Levenshtein) of two short words.
func distance(a, b string) int {
	if len(a) > 60 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
