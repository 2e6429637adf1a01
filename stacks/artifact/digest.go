package artifact

import (
	"strings"
)

const sha256Hex = 64

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
	if !isHex(sum) {
		return "", newError(Malformed, "", "digest %q: expected 64 lower-case hexadecimal digits", truncate(digest, 128))
	}
	return sum, nil
}

func isHex(s string) bool {
	if len(s) != sha256Hex {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
