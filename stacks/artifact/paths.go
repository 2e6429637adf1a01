package artifact

import (
	"strings"
	"unicode/utf8"
)

const (
	// maxPath leaves room for the cache's own folder below what the kernel takes.
	maxPath    = 2048
	maxElement = 255
)

// treePath gives the clean relative path that a tarball's entry names, "." for
// the root itself. ".." is refused even where it would stay inside: nobody
// needs it, and every reader of a tree would have to reckon with it.
func treePath(name string, depth int) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", fail(UnsafePath, name, "an absolute path")
	case strings.ContainsAny(name, "\\\x00"):
		return "", fail(UnsafePath, name, `a path with \ or a zero byte`)
	case !utf8.ValidString(name):
		return "", fail(UnsafePath, name, "a path that is not UTF-8")
	}
	kept := make([]string, 0, 8)
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == ".":
		case element == "..":
			return "", fail(UnsafePath, name, `a path with ".."`)
		case len(kept) == depth:
			return "", fail(TooDeep, name, "the path has more than %d elements", depth)
		case len(element) > maxElement:
			return "", fail(Malformed, name, "a name of more than %d bytes", maxElement)
		default:
			kept = append(kept, element)
		}
	}
	if len(kept) == 0 {
		return ".", nil
	}
	clean := strings.Join(kept, "/")
	if len(clean) > maxPath {
		return "", fail(Malformed, name, "a path of more than %d bytes", maxPath)
	}
	return clean, nil
}
