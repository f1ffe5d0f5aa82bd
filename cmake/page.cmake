# Writes a C file with the page that `lazuli serve` shows, plain and compressed:
#     cmake -DOUT=page_files.c -DFILES="index.html;style.css" -P page.cmake
set(arrays "")
set(rows "")
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
set(type_webmanifest "application/manifest+json")

# Appends the bytes of a file in hexadecimal as an array.
macro(add_array id hex)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(....................................................................................................)" "\\1\n"
           bytes "${bytes}")
    string(APPEND arrays "static const unsigned char ${id}[] = {\n${bytes}};\n")
endmacro()

foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    get_filename_component(ending ${file} LAST_EXT)
    string(SUBSTRING "${ending}" 1 -1 ending)
    if(NOT DEFINED type_${ending})
        message(FATAL_ERROR "${file}: cmake/page.cmake knows no type for .${ending}")
    endif()
    string(MAKE_C_IDENTIFIER ${name} id)
    file(SHA256 ${file} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    file(ARCHIVE_CREATE OUTPUT ${OUT}.gz PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(READ ${file} plain HEX)
    file(READ ${OUT}.gz packed HEX)
    # The time in the header of gzip (bytes 4 to 7) is zeroed, so that the same page gives the same program.
    string(SUBSTRING ${packed} 0 8 head)
    string(SUBSTRING ${packed} 16 -1 rest)
    add_array(${id} "${plain}")
    add_array(${id}_gzip "${head}00000000${rest}")
    string(APPEND rows "    {\"${name}\", \"${type_${ending}}\", \"${hash}\", ${id}, ${id}_gzip, sizeof ${id}, sizeof ${id}_gzip},\n")
endforeach()
file(REMOVE ${OUT}.gz)
file(WRITE ${OUT} "/* made by cmake/page.cmake */\n#include \"serve/page.h\"\n\n${arrays}\n"
                  "const page_file page_files[] = {\n${rows}    {0},\n};\n")
