module github.com/holdfastlock/holdfast/adapt/migrate

go 1.26.0

replace github.com/holdfastlock/holdfast => ../..

require github.com/holdfastlock/holdfast v0.0.0
