// Package schema embeds the JSON schemas with which editors validate files.
package schema

import _ "embed"

// Stack is the JSON schema of a stack file.
//
//go:embed stack.v1.schema.json
var Stack []byte
