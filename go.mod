module github.com/holdfastlock/holdfast

go 1.26.0
