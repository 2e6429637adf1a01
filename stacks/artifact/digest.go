package artifact

import (
	"regexp"
	"strings"
)

// sha256Pattern matches the hexadecimal part of a digest.
var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseDigest returns the hexadecimal part of a digest such as "sha256:2c26…". The error
// names an unsupported algorithm: content that can't be checked must not be fetched.
func ParseDigest(digest string) (string, error) {
	if digest == "" {
		return "", newError(UnsupportedDigest, "", "the artifact has no digest; expected sha256:<64 hexadecimal digits>")
	}
	algorithm, sum, ok := strings.Cut(digest, ":")
	if !ok {
		return "", newError(Malformed, "", "digest %q: expected sha256:<64 hexadecimal digits>", truncate(digest, 128))
	}
	if algorithm != "sha256" {
		return "", newError(UnsupportedDigest, "", "digest algorithm %q is not supported; expected sha256", truncate(algorithm, 32))
	}
	if !sha256Pattern.MatchString(sum) {
		return "", newError(Malformed, "", "digest %q: expected 64 lower-case hexadecimal digits", truncate(digest, 128))
	}
	return sum, nil
}
