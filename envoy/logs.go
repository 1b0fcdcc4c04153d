package envoy

import (
	"bufio"
	"io"
	"strings"
)

const (
	// maxLogLine is where a line of Envoy's log is cut.
	maxLogLine = 8 << 10
	// logFormat is time, level, component and message.
	logFormat = "%Y-%m-%dT%H:%M:%S.%e %l %n %v"
)

// readLines calls f for each line of r until r ends. Of a line over maxLogLine
// the rest is dropped.
func readLines(r io.Reader, f func(line string)) {
	br := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, more, err := br.ReadLine()
		if err != nil {
			return
		}
		text := strings.TrimSuffix(string(line), `\n`) // escaped by --log-format-escaped
		for more && err == nil {
			_, more, err = br.ReadLine()
		}
		if text != "" {
			f(text)
		}
	}
}

// fatal tells whether a line says why Envoy ends, and gives its message.
func fatal(line string) (message string, ok bool) {
	for _, level := range []string{" critical ", " error "} {
		if _, rest, found := strings.Cut(line, level); found {
			_, message, _ = strings.Cut(rest, " ") // the component
			return message, true
		}
	}
	return "", false
}
