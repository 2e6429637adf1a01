// Package schema holds the JSON schemas that editors check files with.
package schema

import _ "embed"

// Stack is the JSON schema of a stack file.
//
//go:embed stack.v1.schema.json
var Stack []byte
