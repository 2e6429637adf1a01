package panics

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ksctl/gitops/e2e/suite"
)

func TestPanics(t *testing.T) { suite.Run(t, "Panics") }

var attempts int

var _ = It("panics once", func() {
	if attempts++; attempts == 1 {
		panic("first attempt")
	}
})
