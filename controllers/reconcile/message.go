package reconcile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Truncate returns s as valid UTF-8 of at most limit bytes. If s is longer, an ellipsis is added.
func Truncate(s string, limit int) string {
	// The rest is not read: a message can have megabytes.
	head := s[:min(len(s), limit+utf8.UTFMax)]
	valid := strings.ToValidUTF8(head, "�")
	if len(head) == len(s) && len(valid) <= limit {
		return valid
	}
	return strings.ToValidUTF8(valid[:min(len(valid), limit)], "") + "…"
}

// maxListedNames is the maximum number of names in a message. Further names are only counted.
const maxListedNames = 5

// JoinNames joins the names of objects for a message, and counts those after the fifth.
func JoinNames(names []string) string {
	if len(names) <= maxListedNames {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxListedNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListedNames)
}
