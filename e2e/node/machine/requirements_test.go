package machine

import (
	"strings"
	"testing"
)

func TestMissingCapabilities(t *testing.T) {
	const status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t%\nCapBnd:\t0\n"
	for set, want := range map[string]string{
		"000001ffffffffff": "",
		"000001fffeffffff": "", // CAP_SYS_RESOURCE is not needed
		"000001ffffdfefff": "a node needs the capabilities CAP_NET_ADMIN, CAP_SYS_ADMIN",
		"x":                "reading the capabilities of the process: strconv.ParseUint: parsing \"x\": invalid syntax",
	} {
		if got := missingCapabilities(strings.Replace(status, "%", set, 1)); got != want {
			t.Errorf("%s: %q, want %q", set, got, want)
		}
	}
}
