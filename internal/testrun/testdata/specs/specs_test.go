package specs

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/suite"
)

func TestSpecs(t *testing.T) { suite.Run(t, "Specs") }

var attempts, safetyAttempts int

var _ = Describe("A spec", func() {
	It("flakes", func() {
		attempts++
		GinkgoWriter.Println("what the spec wrote")
		Expect(attempts).To(BeNumerically(">", 1))
	})
	It("is about safety", suite.Safety, func() {
		safetyAttempts++
		Expect(safetyAttempts).To(BeNumerically(">", 1))
	})
	It("is skipped", func() { Skip("no root") })
})
