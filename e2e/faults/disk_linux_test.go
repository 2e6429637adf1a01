package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

// smallDisk is a folder with a file system of its own.
func smallDisk() string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m")
	if errors.Is(err, syscall.EPERM) {
		Skip("a small file system needs the right to mount one, as root has it")
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill writes a file for which there is no room, and keeps what fits of it.
func fill(dir string) string {
	GinkgoHelper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	Expect(err).To(MatchError(syscall.ENOSPC))
	return path
}

// failing waits until an install says why it can't fetch a revision.
func (f *fleet) failing(ctx context.Context, install, text string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		in := &appsv1.KsctlInstall{}
		err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: f.ns, Name: install}, in)
		c := harness.Ready(in)
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), err
	}).WithTimeout(soon).Should(SatisfyAll(HavePrefix("False "), ContainSubstring(text)), "it says what is wrong")
}

var _ = Describe("A disk", func() {
	DescribeTable("is named when it fails, what is installed stays, and work goes on when it is mended",
		func(ctx SpecContext, fail func(dir string) (mend func()), says string) {
			f := newFleet(ctx, map[string]int{"i": 30})
			dir := smallDisk()
			life := start(ctx, f, nil, "--storage-path="+dir)
			f.install(ctx, "i", 1)
			f.stands(ctx)
			mend := fail(dir)
			DeferCleanup(mend) // or it can't be unmounted
			before := versions(ctx, f)
			f.publish(ctx, "i", 2)
			f.failing(ctx, "i", says)
			after := versions(ctx, f)
			delete(before, "KsctlInstall i")
			delete(after, "KsctlInstall i")
			Expect(after).To(Equal(before), "nothing is changed by half")
			Consistently(life.Done(), "100ms").ShouldNot(BeClosed())
			mend()
			f.stands(ctx)
			f.clears(ctx)
		},
		Entry("because it is full", func(dir string) func() {
			path := fill(dir)
			return func() { _ = os.Remove(path) }
		}, "no space left on device"),
		Entry("because it can't be written", func(dir string) func() {
			Eventually(func() error { // it is busy while a file is written
				return syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
			}).WithTimeout(soon).Should(Succeed())
			return func() { Expect(syscall.Mount("none", dir, "", syscall.MS_REMOUNT, "size=2m")).To(Succeed()) }
		}, "read-only file system"),
	)

	It("that can't be written at the start ends the controller, which names it", func(ctx SpecContext) {
		f := newFleet(ctx, map[string]int{})
		dir := smallDisk()
		Expect(syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")).To(Succeed())
		life := start(ctx, f, nil, "--storage-path="+filepath.Join(dir, "storage"))
		Eventually(ctx, life.Done()).WithTimeout(soon).Should(BeClosed())
		Expect(life.Err()).To(HaveOccurred())
		Expect(life.Log()).To(SatisfyAll(ContainSubstring(dir), ContainSubstring("read-only file system")))
	})
})
