// Package deps has no code. Its test holds the table of which package may import
// which, and fails on an import that is not in it: the shape of the program is
// decided there and not by the next convenient import.
package deps
