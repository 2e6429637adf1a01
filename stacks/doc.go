// Package stacks is the stack format as a library: load, validate, resolve and
// render, without a cluster. Controllers and the command line use the same code.
//
//	Load     a folder of a source → a validated Definition
//	Resolve  Definition + Choices → ResolvedStack: components in order, exact versions, merged overrides
//	Render   Request              → Result: objects with namespace, sorted and hashed
//	Renderer caches Render by the digest of the request
//
// Render is a pure function of its request and of the files that it reads below
// Request.Root; Result.Trace lists these files. It fetches nothing, executes nothing, and uses
// neither the clock nor a cluster.
//
// Precedence of values, lowest to highest: the stack's defaults (for a chart: the chart's own
// values, then valuesFiles, then values), values from ConfigMaps and Secrets, the result of
// parameters.map, the component's override.
//
// Schemas in a stack (parameters.schema and schema) are closed: an object schema with properties
// rejects all other keys, at every depth, unless it sets additionalProperties or
// patternProperties or is composed with allOf and the like. This detects typos. The
// values.schema.json of a chart follows the JSON schema specification.
//
// All problems are reported at once, as Errors with file, line and component. Messages never
// contain values from Secrets.
package stacks
