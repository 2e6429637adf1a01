package artifact

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxPath leaves room for the path of the cache below the path limit of the kernel.
	maxPath    = 2048
	maxElement = 255
)

// treePath returns the clean relative path of a tarball entry, and "." for the root
// itself. It refuses ".." even if the path stays inside the tree: no source needs it, and
// every reader of a tree would have to handle it.
func treePath(name string, depth int) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", newError(UnsafePath, name, "the path is absolute")
	case strings.ContainsAny(name, "\\\x00"):
		return "", newError(UnsafePath, name, `the path contains \ or a zero byte`)
	case !utf8.ValidString(name):
		return "", newError(UnsafePath, name, "the path is not UTF-8")
	}
	kept := make([]string, 0, 8)
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == ".":
		case element == "..":
			return "", newError(UnsafePath, name, `the path contains ".."`)
		case len(kept) == depth:
			return "", newError(TooDeep, name, "the path has more than %d elements", depth)
		case len(element) > maxElement:
			return "", newError(Malformed, name, "a path element has more than %d bytes", maxElement)
		default:
			kept = append(kept, element)
		}
	}
	if len(kept) == 0 {
		return ".", nil
	}
	clean := strings.Join(kept, "/")
	if len(clean) > maxPath {
		return "", newError(Malformed, name, "the path has more than %d bytes", maxPath)
	}
	return clean, nil
}

// sha256Pattern matches the hexadecimal part of a digest.
var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseDigest returns the hexadecimal part of a digest such as "sha256:2c26…". The error
// names an unsupported algorithm: content that can't be checked must not be fetched.
func ParseDigest(digest string) (string, error) {
	if digest == "" {
		return "", newError(UnsupportedDigest, "",
			"the artifact has no digest; expected sha256:<64 hexadecimal digits>")
	}
	algorithm, sum, ok := strings.Cut(digest, ":")
	if !ok {
		return "", newError(Malformed, "", "digest %q: expected sha256:<64 hexadecimal digits>", truncate(digest, 128))
	}
	if algorithm != "sha256" {
		return "", newError(UnsupportedDigest, "", "digest algorithm %q is not supported; expected sha256",
			truncate(algorithm, 32))
	}
	if !sha256Pattern.MatchString(sum) {
		return "", newError(Malformed, "", "digest %q: expected 64 lower-case hexadecimal digits",
			truncate(digest, 128))
	}
	return sum, nil
}
