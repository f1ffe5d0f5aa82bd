# Writes a C file with the contents of text files: cmake -DOUT=kernels.c -DFILES="a.cu;b.cu" -P embed.cmake
# The library then carries its kernels' sources, and needs no files beside it when it runs.
set(arrays "")
set(rows "")
foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} id)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(....................................................................................................)" "\\1\n"
           bytes "${bytes}")
    string(APPEND arrays "static const char ${id}[] = {\n${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", ${id}},\n")
endforeach()
file(WRITE ${OUT} "/* made by cmake/embed.cmake */\n#include \"backend/cuda/cuda.h\"\n\n${arrays}\n"
                  "const lz_cuda_source lz_cuda_sources[] = {\n${rows}    {0},\n};\n")
