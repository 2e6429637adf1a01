package artifact

import (
	"strings"
)

const sha256Hex = 64

// ParseDigest gives the hexadecimal part of a digest such as
// "sha256:2c26…". Other algorithms are refused by name: what can't be checked
// is not fetched.
func ParseDigest(digest string) (string, error) {
	if digest == "" {
		return "", fail(UnsupportedDigest, "", "the artifact has no digest; expected sha256:<64 hexadecimal digits>")
	}
	algorithm, sum, ok := strings.Cut(digest, ":")
	if !ok {
		return "", fail(Malformed, "", "digest %q: expected sha256:<64 hexadecimal digits>", clip(digest, 128))
	}
	if algorithm != "sha256" {
		return "", fail(UnsupportedDigest, "", "digest algorithm %q is not supported; expected sha256", clip(algorithm, 32))
	}
	if !isHex(sum) {
		return "", fail(Malformed, "", "digest %q: expected 64 lower-case hexadecimal digits", clip(digest, 128))
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
