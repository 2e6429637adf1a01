// Command program is built by a test that generates its SBOM.
package main

import (
	"fmt"

	"github.com/Masterminds/semver/v3"
)

func main() { fmt.Println(semver.MustParse("1.0.0")) }
