package nodegroup

import (
	"fmt"
	"strings"
)

// sizeCatalog maps common machine types of AWS, Azure and Civo to their hardware, by name in lower
// case. The clouds publish the numbers:
// https://aws.amazon.com/ec2/instance-types/
// https://learn.microsoft.com/azure/virtual-machines/sizes/overview
// https://www.civo.com/pricing
var sizeCatalog = newSizeCatalog()

// sizeFamily is a set of machine types with the same sizes.
type sizeFamily struct {
	// names are name patterns, separated by spaces; %s stands for the size.
	names string
	// sizes lists the sizes with their number of CPUs (large=2), and with their memory in MiB
	// (large=2/8192) unless the family has the same memory per CPU.
	sizes string
	// memory is the memory per CPU, in MiB; 0 if the sizes have their own.
	memory int64
	arm    bool
}

const (
	awsSizes      = "large=2 xlarge=4 2xlarge=8 4xlarge=16 8xlarge=32 12xlarge=48 16xlarge=64 24xlarge=96"
	gravitonSizes = "medium=1 large=2 xlarge=4 2xlarge=8 4xlarge=16 8xlarge=32 12xlarge=48 16xlarge=64"
	burstSizes    = "nano=2/512 micro=2/1024 small=2/2048 medium=2/4096 large=2/8192 xlarge=4/16384 2xlarge=8/32768"
	azureSizes    = "2=2 4=4 8=8 16=16 32=32 48=48 64=64"
)

var sizeFamilies = []sizeFamily{
	{names: "m5.%s m5a.%s m5n.%s m6i.%s m6a.%s m7i.%s m7a.%s", sizes: awsSizes, memory: 4096},
	{names: "r5.%s r5a.%s r5n.%s r6i.%s r6a.%s r7i.%s r7a.%s", sizes: awsSizes, memory: 8192},
	{names: "c5a.%s c6i.%s c6a.%s c7i.%s c7a.%s", sizes: awsSizes, memory: 2048},
	{names: "c5.%s", sizes: "large=2 xlarge=4 2xlarge=8 4xlarge=16 9xlarge=36 12xlarge=48 18xlarge=72 24xlarge=96",
		memory: 2048},
	{names: "m6g.%s m7g.%s m8g.%s", sizes: gravitonSizes, memory: 4096, arm: true},
	{names: "r6g.%s r7g.%s r8g.%s", sizes: gravitonSizes, memory: 8192, arm: true},
	{names: "c6g.%s c7g.%s c8g.%s", sizes: gravitonSizes, memory: 2048, arm: true},
	{names: "t2.%s",
		sizes: "nano=1/512 micro=1/1024 small=1/2048 medium=2/4096 large=2/8192 xlarge=4/16384 2xlarge=8/32768"},
	{names: "t3.%s t3a.%s", sizes: burstSizes},
	{names: "t4g.%s", sizes: burstSizes, arm: true},

	{names: "standard_d%s_v3 standard_d%ss_v3 standard_d%s_v4 standard_d%ss_v4 standard_d%sds_v4 standard_d%sas_v4",
		sizes: azureSizes, memory: 4096},
	{names: "standard_d%s_v5 standard_d%ss_v5 standard_d%sds_v5 standard_d%sas_v5 standard_d%sads_v5",
		sizes: azureSizes, memory: 4096},
	{names: "standard_e%ss_v3 standard_e%ss_v4 standard_e%sas_v4 standard_e%ss_v5 standard_e%sds_v5 standard_e%sas_v5",
		sizes: "2=2 4=4 8=8 16=16 32=32", memory: 8192},
	{names: "standard_f%ss_v2", sizes: "2=2 4=4 8=8 16=16 32=32 48=48 64=64 72=72", memory: 2048},
	{names: "standard_d%sps_v5", sizes: azureSizes, memory: 4096, arm: true},
	{names: "standard_d%spls_v5", sizes: azureSizes, memory: 2048, arm: true},
	{names: "standard_d%s_v2 standard_ds%s_v2", sizes: "1=1 2=2 3=4 4=8 5=16", memory: 3584},
	{names: "standard_b%s",
		sizes: "1ls=1/512 1s=1/1024 1ms=1/2048 2s=2/4096 2ms=2/8192 4ms=4/16384 " +
			"8ms=8/32768 12ms=12/49152 16ms=16/65536 20ms=20/81920"},

	{names: "g4p.kube.%s", sizes: "small=4 medium=8 large=16 xlarge=32", memory: 4096},
	{names: "g4c.kube.%s", sizes: "small=8 medium=16 large=32 xlarge=64", memory: 2048},
	{names: "g3.%s g4s.%s",
		sizes: "xsmall=1/1024 small=1/2048 medium=2/4096 large=4/8192 xlarge=6/16384 2xlarge=8/32768"},
	{names: "g4s.kube.%s", sizes: "xsmall=1/1024 small=1/2048 medium=2/4096 large=4/8192"},
}

func newSizeCatalog() map[string]machine {
	out := map[string]machine{}
	for _, f := range sizeFamilies {
		for _, entry := range strings.Fields(f.sizes) {
			sizeName, numbers, _ := strings.Cut(entry, "=")
			var cpus, memory int64
			read, err := fmt.Sscanf(numbers, "%d/%d", &cpus, &memory)
			if read == 1 {
				memory = cpus * f.memory
			}
			if memory == 0 {
				panic(fmt.Sprintf("size catalog: invalid entry %q: %v", entry, err))
			}
			for _, name := range strings.Fields(f.names) {
				out[strings.Replace(name, "%s", sizeName, 1)] = machine{cpu: cpus * 1000, memory: memory * mib,
					storage: defaultStorage, pods: defaultPods, arm: f.arm}
			}
		}
	}
	return out
}
