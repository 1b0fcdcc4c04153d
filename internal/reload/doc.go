// Package reload keeps the configuration in force in step with its file.
//
// Flow: [Reloader.Run] watches the directories that the file's name leads
// through (not the file, whose inode an editor or a mounted ConfigMap replaces),
// and the CA files that the configuration names. When one of them changed, and
// was quiet for a moment, its content is compared with what was read last; if it
// differs, the configuration is loaded and applied. A file that cannot be loaded
// changes nothing but the log and the metrics: the last good configuration stays
// in force. Every half minute it looks without being told, because network file
// systems tell nothing.
//
// Concurrency: one goroutine, that of Run, owns all state and calls Load and
// Apply, one at a time. Trigger may be called from anywhere.
package reload
