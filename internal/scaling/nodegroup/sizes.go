package nodegroup

import (
	"fmt"
	"strings"
)

// machineSize is the hardware of a machine type, from the public price list of its cloud.
type machineSize struct {
	cpus int64
	// memory is in MiB.
	memory int64
	arm    bool
}

func (s machineSize) machine() machine {
	return machine{cpu: s.cpus * 1000, memory: s.memory * mib, storage: defaultStorage, pods: defaultPods, arm: s.arm}
}

// sizeCatalog maps common machine types of AWS, Azure and Civo to their hardware, by name in lower
// case. The clouds publish the numbers:
// https://aws.amazon.com/ec2/instance-types/
// https://learn.microsoft.com/azure/virtual-machines/sizes/overview
// https://www.civo.com/pricing
var sizeCatalog = newSizeCatalog()

// sizeFamily is a set of machine types with the same memory per CPU.
type sizeFamily struct {
	// names are name patterns, separated by spaces; %s stands for the size.
	names string
	// sizes lists the sizes with their number of CPUs: large=2.
	sizes string
	// memory is the memory per CPU, in MiB.
	memory int64
	arm    bool
}

const (
	awsSizes      = "large=2 xlarge=4 2xlarge=8 4xlarge=16 8xlarge=32 12xlarge=48 16xlarge=64 24xlarge=96"
	gravitonSizes = "medium=1 large=2 xlarge=4 2xlarge=8 4xlarge=16 8xlarge=32 12xlarge=48 16xlarge=64"
	azureSizes    = "2=2 4=4 8=8 16=16 32=32 48=48 64=64"
)

var sizeFamilies = []sizeFamily{
	{names: "m5.%s m5a.%s m5n.%s m6i.%s m6a.%s m7i.%s m7a.%s", sizes: awsSizes, memory: 4096},
	{names: "r5.%s r5a.%s r5n.%s r6i.%s r6a.%s r7i.%s r7a.%s", sizes: awsSizes, memory: 8192},
	{names: "c5a.%s c6i.%s c6a.%s c7i.%s c7a.%s", sizes: awsSizes, memory: 2048},
	{names: "c5.%s", sizes: "large=2 xlarge=4 2xlarge=8 4xlarge=16 9xlarge=36 12xlarge=48 18xlarge=72 24xlarge=96", memory: 2048},
	{names: "m6g.%s m7g.%s m8g.%s", sizes: gravitonSizes, memory: 4096, arm: true},
	{names: "r6g.%s r7g.%s r8g.%s", sizes: gravitonSizes, memory: 8192, arm: true},
	{names: "c6g.%s c7g.%s c8g.%s", sizes: gravitonSizes, memory: 2048, arm: true},

	{names: "standard_d%s_v3 standard_d%ss_v3 standard_d%s_v4 standard_d%ss_v4 standard_d%sds_v4 standard_d%sas_v4", sizes: azureSizes, memory: 4096},
	{names: "standard_d%s_v5 standard_d%ss_v5 standard_d%sds_v5 standard_d%sas_v5 standard_d%sads_v5", sizes: azureSizes, memory: 4096},
	{names: "standard_e%ss_v3 standard_e%ss_v4 standard_e%sas_v4 standard_e%ss_v5 standard_e%sds_v5 standard_e%sas_v5", sizes: "2=2 4=4 8=8 16=16 32=32", memory: 8192},
	{names: "standard_f%ss_v2", sizes: "2=2 4=4 8=8 16=16 32=32 48=48 64=64 72=72", memory: 2048},
	{names: "standard_d%sps_v5", sizes: azureSizes, memory: 4096, arm: true},
	{names: "standard_d%spls_v5", sizes: azureSizes, memory: 2048, arm: true},

	{names: "g4p.kube.%s", sizes: "small=4 medium=8 large=16 xlarge=32", memory: 4096},
	{names: "g4c.kube.%s", sizes: "small=8 medium=16 large=32 xlarge=64", memory: 2048},
}

// irregularSizes are machine types that follow no family's rule.
var irregularSizes = map[string]machineSize{
	"t2.nano": {1, 512, false}, "t2.micro": {1, 1024, false}, "t2.small": {1, 2048, false}, "t2.medium": {2, 4096, false},
	"t2.large": {2, 8192, false}, "t2.xlarge": {4, 16384, false}, "t2.2xlarge": {8, 32768, false},
	"t3.nano": {2, 512, false}, "t3.micro": {2, 1024, false}, "t3.small": {2, 2048, false}, "t3.medium": {2, 4096, false},
	"t3.large": {2, 8192, false}, "t3.xlarge": {4, 16384, false}, "t3.2xlarge": {8, 32768, false},
	"t3a.nano": {2, 512, false}, "t3a.micro": {2, 1024, false}, "t3a.small": {2, 2048, false}, "t3a.medium": {2, 4096, false},
	"t3a.large": {2, 8192, false}, "t3a.xlarge": {4, 16384, false}, "t3a.2xlarge": {8, 32768, false},
	"t4g.nano": {2, 512, true}, "t4g.micro": {2, 1024, true}, "t4g.small": {2, 2048, true}, "t4g.medium": {2, 4096, true},
	"t4g.large": {2, 8192, true}, "t4g.xlarge": {4, 16384, true}, "t4g.2xlarge": {8, 32768, true},

	"standard_b1ls": {1, 512, false}, "standard_b1s": {1, 1024, false}, "standard_b1ms": {1, 2048, false},
	"standard_b2s": {2, 4096, false}, "standard_b2ms": {2, 8192, false}, "standard_b4ms": {4, 16384, false},
	"standard_b8ms": {8, 32768, false}, "standard_b12ms": {12, 49152, false}, "standard_b16ms": {16, 65536, false}, "standard_b20ms": {20, 81920, false},
	"standard_ds1_v2": {1, 3584, false}, "standard_ds2_v2": {2, 7168, false}, "standard_ds3_v2": {4, 14336, false},
	"standard_ds4_v2": {8, 28672, false}, "standard_ds5_v2": {16, 57344, false},
	"standard_d1_v2": {1, 3584, false}, "standard_d2_v2": {2, 7168, false}, "standard_d3_v2": {4, 14336, false},
	"standard_d4_v2": {8, 28672, false}, "standard_d5_v2": {16, 57344, false},

	"g3.xsmall": {1, 1024, false}, "g3.small": {1, 2048, false}, "g3.medium": {2, 4096, false},
	"g3.large": {4, 8192, false}, "g3.xlarge": {6, 16384, false}, "g3.2xlarge": {8, 32768, false},
	"g4s.xsmall": {1, 1024, false}, "g4s.small": {1, 2048, false}, "g4s.medium": {2, 4096, false},
	"g4s.large": {4, 8192, false}, "g4s.xlarge": {6, 16384, false}, "g4s.2xlarge": {8, 32768, false},
	"g4s.kube.xsmall": {1, 1024, false}, "g4s.kube.small": {1, 2048, false}, "g4s.kube.medium": {2, 4096, false}, "g4s.kube.large": {4, 8192, false},
}

func newSizeCatalog() map[string]machineSize {
	out := map[string]machineSize{}
	for name, s := range irregularSizes {
		out[name] = s
	}
	for _, f := range sizeFamilies {
		for _, entry := range strings.Fields(f.sizes) {
			sizeName, number, _ := strings.Cut(entry, "=")
			var cpus int64
			if _, err := fmt.Sscan(number, &cpus); err != nil {
				panic(fmt.Sprintf("size catalog: invalid entry %q: %v", entry, err))
			}
			for _, name := range strings.Fields(f.names) {
				out[strings.Replace(name, "%s", sizeName, 1)] = machineSize{cpus: cpus, memory: cpus * f.memory, arm: f.arm}
			}
		}
	}
	return out
}
