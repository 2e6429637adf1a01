package statestore

import "fmt"

// Said counts states and credentials in words.
func Said(states, credentials int) string {
	clusters, clouds := Plural(states, "state"), "the credentials of "+Plural(credentials, "cloud")
	switch {
	case credentials == 0:
		return clusters
	case states == 0:
		return clouds
	}
	return clusters + " and " + clouds
}

// Plural counts something in words.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
